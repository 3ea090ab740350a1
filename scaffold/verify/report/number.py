"""Measured values as text: short, but never so short that a value above its limit looks equal to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

DIGITS = 3
# Enough to tell any two float64 apart.
EXACT_DIGITS = 17


def figure(value: float | None, digits: int = DIGITS) -> str:
    """``value`` with that many significant digits: ``0``, ``14``, ``8.12e-8``, ``inf``, ``nan``; "" for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    mantissa, mark, exponent = f"{value:.{digits}g}".partition("e")
    if not mark:
        return mantissa
    return f"{mantissa}e{int(exponent)}"


def figures(value: float | None, limit: float | None) -> tuple[str, str]:
    """``value`` and ``limit`` as text, with as many digits as it takes to tell them apart."""
    first, second = distinct_figures((value, limit))
    return first, second


def distinct_figures(values: Sequence[float | None]) -> list[str]:
    """``values`` as text with equal digits, as many as it takes so that different values look different."""
    different = len({value for value in values if value is None or not math.isnan(value)})
    for digits in range(DIGITS, EXACT_DIGITS + 1):
        texts = [figure(value, digits) for value in values]
        if len(set(texts) - {"nan"}) >= different:
            break
    return texts


def duration(seconds: float) -> str:
    """``seconds`` with its unit: ``0.41 s``, ``12.3 s``, ``2 min 5 s``."""
    if not math.isfinite(seconds):
        return figure(seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
