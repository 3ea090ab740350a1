"""A file of the checked tree: bytes, text and lines, also where only a patch shows lines of it."""

from __future__ import annotations

import codecs
import re
from functools import cached_property

from scaffold.check.finding import Span

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


_LINE_END = re.compile("\r\n|\r|\n")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class UndecodableError(Exception):
    """The bytes of a file are not text; ``args`` are the reason and the line."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason, line)
        self.reason, self.line = reason, line


class SourceFile:
    """A text file.

    Args:
        path: POSIX path below the root of the tree.
        data: its bytes.
        patched: the lines of a patch beside the tree, where the text comes from it; findings are shown there.
    """

    def __init__(self, path: str, data: bytes, patched: PatchedFile | None = None) -> None:
        self.path = path
        self.data = data
        self.shown = path if patched is None else PATCH
        self._patched = patched

    @property
    def partial(self) -> bool:
        """Whether only some lines of the file are known, because a patch beside the tree brings them."""
        return self._patched is not None

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Folder of the file, POSIX, below the root of the tree."""
        return self.path.rpartition("/")[0]

    @cached_property
    def encoding(self) -> str:
        """Encoding of the bytes: UTF-8; Python files say their own."""
        return "utf-8-sig" if self.data.startswith(codecs.BOM_UTF8) else "utf-8"

    @cached_property
    def text(self) -> str:
        """The text with its own line ends.

        Raises:
            UndecodableError: it is not text in its encoding.
        """
        if b"\0" in self.data or self.data.startswith(_UTF16):
            at = self.data.find(b"\0")
            raise UndecodableError("holds NUL bytes", self.data.count(b"\n", 0, max(at, 0)) + 1)
        try:
            return self.data.decode(self.encoding)
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise UndecodableError(f"byte {self.data[error.start]:#04x} is not {self.encoding}", line) from error

    @cached_property
    def plain_text(self) -> str:
        """The text with ``\\n`` for every line end: what patterns read. Its lines are those of `text`.

        Raises:
            UndecodableError: it is not text in its encoding.
        """
        return _LINE_END.sub("\n", self.text) if b"\r" in self.data else self.text

    @property
    def readable(self) -> str:
        """The same; empty where the file is not text."""
        try:
            return self.plain_text
        except UndecodableError:
            return ""

    @cached_property
    def lines(self) -> list[str]:
        """Lines without their ends; empty where the file is not text."""
        try:
            return _LINE_END.split(self.text)
        except UndecodableError:
            return []

    def line(self, number: int) -> str:
        """Return line ``number`` (from 1), empty where there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def shown_span(self, span: Span) -> Span:
        """Return where a span lies in the file that is shown."""
        if self._patched is None or not self._patched.lines:
            return span
        offset = self._patched.numbers[self._patched.at(span.line)] - span.line
        return Span(span.line + offset, span.column + 1, span.end_line + offset, span.end_column + 1)

    def shown_text(self, number: int) -> str:
        """Return line ``number`` as it stands in the file that is shown: in a patch with its sign."""
        if self._patched is None or not self._patched.lines:
            return self.line(number)
        return ("+" if self._patched.added[self._patched.at(number)] else " ") + self.line(number)

    def span_of_line(self, number: int) -> Span:
        """Return the span of line ``number`` without indentation."""
        text = self.line(number)
        start = len(text) - len(text.lstrip()) + 1
        return Span(number, start, number, max(len(text.rstrip()), start) + 1)

    def find(self, text: str, start: int = 1) -> Span | None:
        """Return the first place of ``text`` (one line) at or after line ``start``."""
        for number in range(start, len(self.lines) + 1):
            at = self.lines[number - 1].find(text)
            if at >= 0:
                return Span(number, at + 1, number, at + 1 + len(text))
        return None
