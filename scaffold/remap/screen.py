"""Finds which of many patterns a name fits, in one pass of one regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scaffold.remap.pattern import Pattern


class Screen:
    """Patterns in order; the first that fits decides.

    A map of hundreds of rules meets checkpoints of a hundred thousand keys, too many for a loop over both in Python.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        # An empty group behind each alternative tells which one it was.
        alternatives = "|".join(f"{pattern.expression}()" for pattern in self._patterns)
        self._expression = re.compile(alternatives, re.ASCII) if self._patterns else None

    def first(self, name: str) -> int | None:
        """Return the place of the first pattern that fits; None where none does."""
        found = self._expression.match(name) if self._expression is not None else None
        return found.lastindex - 1 if found is not None and found.lastindex is not None else None
