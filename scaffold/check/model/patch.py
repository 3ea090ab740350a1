"""The edits of a rendered tree's patch: what the hooked files hold once it is applied, as far as it shows them."""

from __future__ import annotations

import re

PATCH = "verl_omni.patch"
_TARGET = re.compile(r"^\+\+\+ (?:b/)?(.+?)(?:\t.*)?$")


class PatchedFile:
    """The new side of one file.

    Args:
        path: the file that is edited.

    Attributes:
        lines: context and added lines, without those between the hunks.
        numbers: line of the patch that each comes from.
        added: whether the patch adds it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.added: list[bool] = []

    @property
    def text(self) -> str:
        """The known lines, one after the other."""
        return "".join(line + "\n" for line in self.lines)

    def at(self, number: int) -> int:
        """Return the index of line ``number`` of `text`; that of the nearest where there is none."""
        return min(max(number, 1), len(self.lines)) - 1


def read_patch(text: str) -> dict[str, PatchedFile]:
    """Return path -> new side of every file in a unified diff; line counts of hunks are not relied on."""
    files: dict[str, PatchedFile] = {}
    current: PatchedFile | None = None
    in_hunk = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("diff ", "--- ")) and not (in_hunk and line.startswith("--- ") and current is None):
            in_hunk = False
            continue
        target = None if in_hunk else _TARGET.match(line)
        if target:
            current = files.setdefault(target[1], PatchedFile(target[1]))
        elif line.startswith("@@"):
            in_hunk = True
        elif in_hunk and current is not None and line[:1] in ("+", " "):
            current.lines.append(line[1:].rstrip("\r"))
            current.numbers.append(number)
            current.added.append(line.startswith("+"))
    return files
