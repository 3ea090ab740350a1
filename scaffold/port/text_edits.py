"""Changes of a text by places of its syntax tree, so that comments and layout of all else stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from scaffold.source.syntax import walk_tree

_BETWEEN = re.compile(rb"(\s|#[^\n]*\n)*,(\s|#[^\n]*\n)*")
_BARE_STAR = re.compile(rb"(\s|#[^\n]*\n)*(,(\s|#[^\n]*\n)*)?\*(\s|#[^\n]*\n)*,(\s|#[^\n]*\n)*")
_PARENTHESIS = re.compile(rb"[=(,+\-*/\[]\s*(\(\s*)$")
_CLOSING = re.compile(rb"\s*\)")
_COMMA = re.compile(rb"\s*,")
Span = tuple[int, int]


class TextEdits:
    """Changes that were asked for; one inside of another is left for the next time.

    Args:
        text: parses.
        tree: its syntax tree.
    """

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.data = text.encode()
        self.lines = [line + b"\n" for line in self.data.split(b"\n")]
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, bytes]] = []
        self._inside_text = {
            row
            for node in walk_tree(tree)
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and (node.end_lineno or 0) > node.lineno
            for row in range(node.lineno + 1, (node.end_lineno or 0) + 1)
        }

    def __bool__(self) -> bool:
        return bool(self._edits)

    def applied(self) -> str:
        """Return the changed text."""
        data, first = self.data, len(self.data)
        for start, end, put in sorted(set(self._edits), key=lambda edit: (-edit[1], edit[0])):
            if end <= first:
                data, first = data[:start] + put + data[end:], start
        return data.decode()

    # Places

    def start(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> int:
        """Return where a node begins, in bytes."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> int:
        """Return what is behind a node, in bytes."""
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def opening(self, node: ast.FunctionDef) -> int:
        """Return what is behind the parenthesis that opens a signature, in bytes."""
        return self.data.index(b"(", self._starts[node.lineno - 1]) + 1

    def colon(self, number: int) -> int:
        """Return where the colon stands that ends a line."""
        return self._starts[number - 1] + self.row(number).split(b"#")[0].rindex(b":")

    def enclosed(self, node: ast.expr) -> Span:
        """Return where an expression stands with parentheses of its own, as far as they are its own for sure."""
        start, end = self.start(node), self.end(node)
        before, behind = _PARENTHESIS.search(self.data, max(0, start - 80), start), _CLOSING.match(self.data, end)
        return (before.start(1), behind.end()) if before and behind else (start, end)

    def row(self, number: int) -> bytes:
        """Return a line by its number, which begins with 1."""
        return self.lines[number - 1]

    def alone(self, node: ast.stmt) -> bool:
        """Tell whether nothing else stands in the lines of a statement, a comment left out."""
        before = self.row(node.lineno)[: node.col_offset]
        behind = self.row(node.end_lineno or node.lineno)[node.end_col_offset or 0 :].strip()
        return not before.strip() and (not behind or behind.startswith(b"#"))

    # Changes

    def put(self, start: int, end: int, text: str | bytes) -> None:
        """Replace what lies between two places."""
        self._edits.append((start, end, text.encode() if isinstance(text, str) else text))

    def replace(self, node: ast.expr, text: str | bytes) -> None:
        """Replace an expression."""
        self.put(self.start(node), self.end(node), text)

    def rows(self, first: int, last: int) -> None:
        """Delete lines, both included."""
        if first <= last:
            self.put(self._starts[first - 1], self._starts[last], b"")

    def drop(self, node: ast.stmt, instead: str = "") -> None:
        """Delete a statement with the comment above it, or put another in its place."""
        first = min([node.lineno, *(found.lineno for found in getattr(node, "decorator_list", ()))])
        indent = self.row(first)[: node.col_offset]
        while first > 1 and first - 1 not in self._inside_text and self.row(first - 1).startswith(indent + b"#"):
            first -= 1
        last = node.end_lineno or node.lineno
        put = indent + instead.encode() + b"\n" if instead else b""
        self.put(self._starts[first - 1], self._starts[last], put)

    def dedent(self, first: int, last: int, columns: int) -> None:
        """Move lines to the left, as far as they are not inside of a string."""
        for number in range(first, last + 1):
            if number not in self._inside_text and self.row(number)[:columns].isspace():
                start = self._starts[number - 1]
                self.put(start, start + min(columns, len(self.row(number)) - 1), b"")

    def separated(self, spans: Sequence[Span]) -> bool:
        """Tell whether nothing but commas and comments lies between the items of a list."""
        return all(_BETWEEN.fullmatch(self.data[a[1] : b[0]]) for a, b in pairwise(spans))

    def star(self, before: int, behind: int) -> Span | None:
        """Return where the ``*`` of a signature stands between two places."""
        found = _BARE_STAR.fullmatch(self.data[before:behind])
        if found is None:
            return None
        place = self.data.rindex(b"*", before, behind)
        return place, place + 1

    def without(self, spans: Sequence[Span], dropped: Iterable[int]) -> None:
        """Delete items of a list that is separated by commas, by their places in it."""
        gone = set(dropped)
        left = [index for index in range(len(spans)) if index not in gone]
        if not left:
            comma = _COMMA.match(self.data, spans[-1][1])
            self.put(spans[0][0], comma.end() if comma else spans[-1][1], b"")
            return
        for index in gone:
            if index < left[-1]:
                self.put(spans[index][0], spans[index + 1][0], b"")
        if left[-1] < len(spans) - 1:
            self.put(spans[left[-1]][1], spans[-1][1], b"")
