"""Limits of what is worked out from the text of a function: how many steps, and how large a value may become."""

from __future__ import annotations

from typing import Any

_MOST = 20000
_LONGEST = 2000  # characters of a string
_LARGEST = 10000  # values inside of a container, those of the containers in it included


class Effort:
    """Steps that are left for one question, those of functions that are called on the way included."""

    def __init__(self) -> None:
        self._left = _MOST

    def spend(self) -> bool:
        """Take a step; False where none is left."""
        self._left -= 1
        return self._left >= 0


def too_large(value: Any) -> bool:
    """Whether a value is longer, or holds more, than anything that names weights."""
    pending, seen = [value], 0
    while pending and seen <= _LARGEST:
        one = pending.pop()
        seen += 1
        if isinstance(one, (list, tuple, set, frozenset, dict)):
            if len(one) > _LARGEST:
                return True
            pending += [*one, *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, str) and len(one) > _LONGEST:
            return True
    return seen > _LARGEST
