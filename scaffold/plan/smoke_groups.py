"""The patterns of a package in the table by which verl-omni's CI selects smoke tests, as text.

A changed file that matches no pattern starts every group; one that matches starts its own group.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scaffold.errors import ScaffoldError

GROUP = "ci-e2e-diffusion"
_PATTERN = re.compile(r"[A-Za-z0-9_./*-]+", re.ASCII)
# A pattern of one word in a name, and letters that do not follow it.
_WORD = re.compile(r'(?P<start> *"[\w./-]*\*)(?P<word>\w+)(?:\[!(?P<letters>\w+)\])?(?P<end>\*",\s*)', re.ASCII)


@dataclass(frozen=True)
class SmokeGroupEdit:
    """Patterns of changed files that start the diffusion group, added at the end of its tuple in ``path``.

    A word in a pattern of another group may be the start of a longer one in the name of a file: ``*omni*`` takes
    ``omnigen2`` for its own. Such a pattern is made narrower, ``*omni[!g]*``.

    Attributes:
        path: of the table.
        patterns: of the package.
        files: smoke tests of the package, which start no other group.
    """

    path: str
    patterns: tuple[str, ...]
    files: tuple[str, ...] = ()

    def apply(self, source: str) -> str:
        """Return the table with the patterns; an existing one stays where it is.

        Raises:
            ScaffoldError: the group has no tuple of patterns.
        """
        lines = source.splitlines(keepends=True)
        first, last = _tuple(lines, self.path)
        there = {line.strip() for line in lines[first:last]}
        added = [f"        {entry}\n" for entry in self._entries() if entry not in there]
        others = self._others(lines, first, last, str.__add__)
        return "".join([*others[:last], *added, *others[last:]])

    def revert(self, source: str) -> str:
        """Return the table without the patterns."""
        mine = set(self._entries())
        lines = source.splitlines(keepends=True)
        if not any(line.strip() in mine for line in lines):
            return source
        first, last = _tuple(lines, self.path)
        lines = self._others(lines, first, last, lambda there, letter: there.replace(letter, ""))
        return "".join(line for i, line in enumerate(lines) if not (first <= i < last and line.strip() in mine))

    def _others(self, lines: list[str], first: int, last: int, change: Callable[[str, str], str]) -> list[str]:
        """Change, in patterns of other groups, the letters that do not follow a word: those that do in ``files``."""

        def changed(line: str) -> str:
            found = _WORD.fullmatch(line)
            if found is None:
                return line
            letters, pattern = found["letters"] or "", f"{found['start']}{found['word']}*".lstrip(' "')
            for file in (file for file in self.files if fnmatchcase(file, pattern)):
                _, _, behind = file.rpartition(found["word"])
                letters = change(letters.replace(behind[:1], ""), behind[:1]) if behind[:1].isalnum() else letters
            letters = "".join(sorted(set(letters)))
            return f"{found['start']}{found['word']}{f'[!{letters}]' if letters else ''}{found['end']}"

        return [line if first <= i < last else changed(line) for i, line in enumerate(lines)]

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
