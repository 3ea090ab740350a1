"""One path of a plan: its state before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scaffold.plan.state import FileState

Action = Literal["create", "edit", "remove", "same"]


@dataclass(frozen=True)
class PlannedChange:
    """A planned change of one path.

    Attributes:
        path: POSIX path from the root of the plan.
        before: what was there when the plan was made; None for nothing.
        after: what the commit leaves there; None for nothing.
        conflict: why this may not be written without ``--force``, in a few words; None if it may.
        note: what a user should know about the change, in a few words.
    """

    path: str
    before: FileState | None
    after: FileState | None
    conflict: str | None = None
    note: str | None = None

    @property
    def action(self) -> Action:
        """What committing the change does."""
        if self.before == self.after:
            return "same"
        if self.before is None:
            return "create"
        return "remove" if self.after is None else "edit"
