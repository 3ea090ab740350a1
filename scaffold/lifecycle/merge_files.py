"""Merges the newly rendered files of a package with a person's edits of the earlier ones."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files import git
from scaffold.limits.child_process import TookTooLong
from scaffold.plan.change import FileState, PlannedChange, as_there, plain
from scaffold.scratch import scratch_folder

if TYPE_CHECKING:
    from scaffold.lifecycle.base import Bases


# Three-way merge of texts, by git.

OPEN, CLOSE = b"<<<<<<< ", b">>>>>>> "
_MANY = 128


@dataclass(frozen=True)
class MergedText:
    """The merged bytes, and whether conflict markers are in them."""

    content: bytes
    conflicts: bool


def merge_text(mine: bytes, base: bytes, new: bytes, *, labels: tuple[str, str, str]) -> MergedText:
    """Merge ``new`` into ``mine``, both derived from ``base``; with an empty base, a two-way merge.

    Args:
        mine: what is on disk.
        base: what was rendered before.
        new: what is rendered now.
        labels: names of the three in conflict markers.

    Raises:
        ScaffoldError: there is no git, or it refuses, as it does for binary content.
    """
    with scratch_folder("merge") as folder:
        for file, content in (("mine", mine), ("base", base), ("new", new)):
            (folder / file).write_bytes(content)
        options = [word for label in labels for word in ("-L", label)]
        # Git's configuration is not read: the user's may set another conflict style, and the folder may be in a
        # repository.
        variables = {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
        try:
            done = git.call("merge-file", "-p", *options, "mine", "base", "new", cwd=folder, variables=variables)
        except (OSError, TookTooLong) as error:
            raise ScaffoldError(f"git merge-file did not run: {error}", hint="update needs git") from None
    if done.returncode >= _MANY:
        problem = done.stderr.decode(errors="replace").strip().splitlines()
        raise ScaffoldError(f"git merge-file failed: {problem[-1] if problem else done.returncode}")
    return MergedText(done.stdout, done.returncode != 0)


def has_markers(content: bytes) -> bool:
    """Whether conflict markers of a merge stand at the beginning of lines, opening and closing."""
    lines = content.splitlines()
    return any(line.startswith(OPEN) for line in lines) and any(line.startswith(CLOSE) for line in lines)


NO_BASE = "edited, and what it was before cannot be reproduced"
SIMILAR = 0.6


@dataclass
class FileMerge:
    """Planned changes of the rendered files, and the paths a person must decide on.

    Attributes:
        changes: one for each path.
        marked: paths with conflict markers.
        broken: Python files that merged without conflict but no longer parse.
        kept: edited files that are no longer rendered, and deleted ones that are rendered differently now.
        merged: edited files into which the new state merged without conflict.
    """

    changes: list[PlannedChange] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)


def merge_files(
    recorded: Mapping[str, str],
    there: Mapping[str, FileState | None],
    new: Mapping[str, FileState],
    bases: Bases,
    *,
    labels: tuple[str, str, str],
    force: bool = False,
) -> FileMerge:
    """Plan the change from what is on disk to ``new``.

    Args:
        recorded: path to digest of each file as it was last rendered.
        there: what is at each recorded and each new path.
        new: what is rendered now.
        bases: finds the rendered content of an edited file.
        labels: names of the file on disk, its base and the new state in conflict markers.
        force: merge an edited file without a base, and overwrite a file in the way.
    """
    result = FileMerge()
    on_disk, there = there, {path: plain(state) for path, state in there.items()}
    renames = _renames(recorded, there, new, bases)
    sources = {target: source for source, target in renames.items()}
    for path in sorted(recorded.keys() | new.keys()):
        if path in renames:
            result.changes.append(PlannedChange(path, there[path], None, note=f"renamed to {renames[path]}"))
        elif path not in new:
            _gone(result, path, there[path], recorded[path])
        elif path in recorded or path in sources:
            source = sources.get(path, path)
            _merge(
                result, path, there[path], there[source], new[path], bases, (source, recorded[source]), labels, force
            )
        else:
            _added(result, path, there[path], new[path])
    result.changes = [
        replace(change, before=on_disk[change.path], after=as_there(change.after, on_disk[change.path]))
        for change in result.changes
    ]
    return result


def _gone(result: FileMerge, path: str, state: FileState | None, digest: str) -> None:
    """Plan to delete a file that is no longer rendered, unless it was edited."""
    if state is None:
        return
    if state.content_sha256 == digest:
        result.changes.append(PlannedChange(path, state, None))
    else:
        result.kept.append(path)
        result.changes.append(PlannedChange(path, state, state, note="edited, no longer rendered, kept"))


def _added(result: FileMerge, path: str, state: FileState | None, new: FileState) -> None:
    conflict = "in the way of a new file" if state is not None and state != new else None
    result.changes.append(PlannedChange(path, state, new, conflict))


def _merge(
    result: FileMerge,
    path: str,
    before: FileState | None,
    mine: FileState | None,
    new: FileState,
    bases: Bases,
    source: tuple[str, str],
    labels: tuple[str, str, str],
    force: bool,
) -> None:
    origin, digest = source
    if mine is None:
        # Deleted by hand: it is not written again, and is reported if its rendering has changed.
        if new.content_sha256 != digest:
            result.kept.append(path)
            result.changes.append(PlannedChange(path, None, None, note="deleted here, rendered differently now"))
        return
    if mine.content_sha256 == digest or mine.content == new.content:
        result.changes.append(PlannedChange(path, before, new))
        return
    if new.content_sha256 == digest:
        kept = mine if mine.link else FileState(mine.content, mine.executable)
        result.changes.append(PlannedChange(path, before, kept, note="edited, kept"))
        return
    if mine.link or new.link:
        result.kept.append(path)
        result.changes.append(PlannedChange(path, before, mine, note="a link that leads elsewhere now, kept"))
        return
    base = bases.find(origin, mine)
    if base is None and not force:
        result.changes.append(PlannedChange(path, before, mine, NO_BASE))
        return
    merged = merge_text(mine.content, base or b"", new.content, labels=labels)
    note = "merged with your edits"
    if merged.conflicts:
        result.marked.append(path)
        note = "conflict markers"
    elif path.endswith(".py") and _parses(mine.content) and not _parses(merged.content):
        result.broken.append(path)
        note = "merged, and no longer Python"
    else:
        result.merged.append(path)
    result.changes.append(PlannedChange(path, before, FileState(merged.content, new.executable), note=note))


def _renames(
    recorded: Mapping[str, str], there: Mapping[str, FileState | None], new: Mapping[str, FileState], bases: Bases
) -> dict[str, str]:
    """Return old path to new path of the edited files whose rendering moved.

    An unedited file is simply deleted at the old path and written at the new one.
    """
    added = [path for path in new if path not in recorded and there[path] is None and not new[path].link]
    found: dict[str, str] = {}
    for path in sorted(recorded.keys() - new.keys()):
        mine = there[path]
        if not added or mine is None or mine.link or mine.content_sha256 == recorded[path]:
            continue
        base = bases.find(path, mine)
        if base is None:
            continue
        ratios = {target: _similarity(base, new[target].content) for target in added}
        best = max(ratios, key=lambda target: ratios[target])
        if ratios[best] >= SIMILAR:
            found[path] = best
            added.remove(best)
    return found


def _similarity(first: bytes, second: bytes) -> float:
    return SequenceMatcher(None, first.splitlines(), second.splitlines(), autojunk=False).ratio()


def _parses(content: bytes) -> bool:
    try:
        ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def unresolved(there: Mapping[str, FileState | None]) -> list[str]:
    """Return the paths that still hold conflict markers of an earlier merge."""
    return sorted(path for path, state in there.items() if state and not state.link and has_markers(state.content))
