"""A plan: every file to write and every edit to make, in memory, before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.plan.change import PlannedChange
from scaffold.plan.transaction import commit
from scaffold.plan.unified import difference
from scaffold.terminal.printable import printable_command

WORDS = {"create": "new", "edit": "changed", "remove": "removed", "same": "same"}
SHOWN = 10


@dataclass(frozen=True)
class Plan:
    """Changes below one root, sorted by path.

    Attributes:
        root: the folder that receives them; it need not exist yet.
        changes: one per path, including those that change nothing.
        force: overwrite conflicts.
        refusal: the error to raise for conflicts, ``ConflictError`` in a checkout.
        conflict_message: its message before the list of paths.
        conflict_hint: its hint.
        emptied: folders to delete if empty, ``.`` for the root itself.
    """

    root: Path
    changes: tuple[PlannedChange, ...]
    force: bool = False
    refusal: type[ScaffoldError] = ScaffoldError
    conflict_message: str = "there is other content"
    conflict_hint: str = "use --force to overwrite"
    emptied: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[PlannedChange, ...]:
        """The changes that a commit would make."""
        return tuple(change for change in self.changes if change.action != "same")

    @property
    def conflicts(self) -> tuple[PlannedChange, ...]:
        """The changes that prevent a commit."""
        return () if self.force else tuple(change for change in self.changes if change.conflict)

    def check(self) -> None:
        """Raise the plan's refusal if there are conflicts; the message lists them."""
        conflicts = self.conflicts
        if not conflicts:
            return
        listed = ", ".join(f"{change.path} ({change.conflict})" for change in conflicts[:SHOWN])
        more = f" and {len(conflicts) - SHOWN} more" if len(conflicts) > SHOWN else ""
        raise self.refusal(f"{self.conflict_message}: {listed}{more}; nothing was written", hint=self.conflict_hint)

    def diff(self) -> str:
        """Return all changes as one unified diff, which ``git apply`` takes at the root."""
        return "".join(difference(change.path, change.before, change.after) for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the root and every change, as in the JSON of commands that write."""
        changes = [
            {"path": change.path, "action": change.action, "conflict": None if self.force else change.conflict}
            for change in self.changes
        ]
        return {"root": str(self.root), "changes": changes}

    def tree(self) -> str:
        """Return the paths as a tree, each with ``new``, ``changed``, ``removed``, ``same`` or ``conflict``."""
        nested: dict[str, object] = {}
        for change in self.changes:
            *folders, name = printable_command(change.path).split("/")
            level = nested
            for folder in folders:
                child = level.setdefault(folder + "/", {})
                assert isinstance(child, dict)
                level = child
            in_conflict = change.conflict is not None and not self.force
            word = f"conflict: {change.conflict}" if in_conflict else WORDS[change.action]
            level[name] = f"{word}, {change.note}" if change.note else word
        lines = _branches(nested, "")
        width = max((len(left) for left, _ in lines), default=0)
        return "".join(f"{left:<{width}}  {word}".rstrip() + "\n" for left, word in lines)

    def commit(self) -> tuple[str, ...]:
        """Write everything or nothing, and return the paths that changed.

        Raises:
            ScaffoldError: there are conflicts, something changed since the plan was made, or the disk refused.
        """
        self.check()
        return commit(self.root, self.pending, self.emptied)


def _branches(level: dict[str, object], indent: str) -> list[tuple[str, str]]:
    lines = []
    for index, (name, child) in enumerate(level.items()):
        last = index == len(level) - 1
        branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
        lines.append((indent + branch + name, child if isinstance(child, str) else ""))
        if isinstance(child, dict):
            lines += _branches(child, indent + below)
    return lines
