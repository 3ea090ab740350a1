"""Lines that a new text changes, so that several fixes of one file can be applied together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, order=True)
class Hunk:
    """Lines ``[start, end)`` (from 0) of the old text become ``text``."""

    start: int
    end: int
    text: str


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends; Python's line ends only, unlike ``str.splitlines``."""
    return _LINES.findall(text)


def hunks(old: str, new: str) -> list[Hunk]:
    """Return the changes from one text to another."""
    before, after = split_lines(old), split_lines(new)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    # A fix changes few lines; only those are compared with each other.
    left, right = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return [
        Hunk(head + i1, head + i2, "".join(right[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def overlap(first: Iterable[Hunk], second: Iterable[Hunk]) -> bool:
    """Whether two fixes conflict: they change the same line, or insert at the same place."""
    others = list(second)
    return any(a != b and a.start <= b.end and b.start <= a.end for a in first for b in others)


def apply_hunks(text: str, changes: Iterable[Hunk]) -> str:
    """Return the text with all changes made; equal ones once."""
    lines = split_lines(text)
    for hunk in sorted(set(changes), reverse=True):
        lines[hunk.start : hunk.end] = [hunk.text]
    return "".join(lines)
