"""Suggestions: the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

# Comparing names costs about 50 µs each; a hostile checkpoint must not make an error message slow.
_MAX_CANDIDATES = 400


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``name``, the first in order among equals; None without candidates."""
    best: tuple[float, str] | None = None
    matcher = SequenceMatcher(b=name[-200:], autojunk=False)
    for candidate in sorted(candidates)[:_MAX_CANDIDATES]:
        matcher.set_seq1(candidate[-200:])
        ratio = matcher.ratio()
        if best is None or ratio > best[0]:
            best = (ratio, candidate)
    return best[1] if best else None
