"""The order in which ruff keeps the names of an import: digits by value, the rest by character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_PIECE = re.compile(r"\d+|\D", re.ASCII)


def key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the sort key of a lower-case module name; ``sd3`` comes before ``sd10``."""
    return tuple(map(_piece_key, _PIECE.findall(name)))


def _piece_key(piece: str) -> tuple[int, int, str]:
    if not piece.isdecimal():
        return (2, 0, piece)
    # Digits with a leading zero are read as a fraction: one by one, before all other numbers.
    return (0, 0, piece) if piece[0] == "0" else (1, int(piece), "")


def place(names: Sequence[str], name: str) -> int:
    """Return the index at which to insert ``name``: its sorted place if ``names`` are sorted, else the end."""
    keys = [key(other) for other in names]
    if any(left > right for left, right in pairwise(keys)):
        return len(names)
    return sum(other < key(name) for other in keys)
