"""The patterns of a package in the table by which verl-omni's CI selects smoke tests, as text.

A changed file that matches no pattern starts every group; one that matches starts its own group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scaffold.errors import ScaffoldError

GROUP = "ci-e2e-diffusion"
_PATTERN = re.compile(r"[A-Za-z0-9_./*-]+", re.ASCII)


@dataclass(frozen=True)
class SmokeGroupEdit:
    """Patterns of changed files that start the diffusion group, added at the end of its tuple in ``path``."""

    path: str
    patterns: tuple[str, ...]

    def apply(self, source: str) -> str:
        """Return the table with the patterns; an existing one stays where it is.

        Raises:
            ScaffoldError: the group has no tuple of patterns.
        """
        lines = source.splitlines(keepends=True)
        first, last = _tuple(lines, self.path)
        there = {line.strip() for line in lines[first:last]}
        added = [f"        {entry}\n" for entry in self._entries() if entry not in there]
        return "".join([*lines[:last], *added, *lines[last:]])

    def revert(self, source: str) -> str:
        """Return the table without the patterns."""
        mine = set(self._entries())
        lines = source.splitlines(keepends=True)
        if not any(line.strip() in mine for line in lines):
            return source
        first, last = _tuple(lines, self.path)
        return "".join(line for i, line in enumerate(lines) if not (first <= i < last and line.strip() in mine))

    def _entries(self) -> list[str]:
        if not all(map(_PATTERN.fullmatch, self.patterns)):
            raise ScaffoldError(f"{self.path}: {', '.join(self.patterns)} cannot be written as patterns")
        return [f'"{pattern}",' for pattern in self.patterns]


def _tuple(lines: list[str], path: str) -> tuple[int, int]:
    """Return the first line of the group's patterns and the one that closes them."""
    texts = [line.rstrip() for line in lines]
    try:
        table = texts.index("GROUP_PATTERNS = {")
        first = texts.index(f'    "{GROUP}": (', table) + 1
        return first, texts.index("    ),", first)
    except ValueError:
        raise ScaffoldError(f"{path}: expected patterns of {GROUP} in GROUP_PATTERNS") from None
