"""Where a number stands on a logarithmic axis, with places of their own for zero and for infinity."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MAX_TICKS = 6
# Parts of the axis, in per cent, that zero and infinity take where they occur; a margin otherwise.
LANE = 10.0
MARGIN = 3.0


@dataclass(frozen=True)
class LogScale:
    """An axis of whole decades.

    Attributes:
        low: exponent of its first decade.
        high: exponent of its last one; greater than ``low``.
        zero: whether zero has a place, left of the first decade.
        infinite: whether infinity has one, right of the last.
    """

    low: int
    high: int
    zero: bool
    infinite: bool

    @classmethod
    def of(cls, values: Iterable[float | None]) -> LogScale | None:
        """The axis that holds ``values``; None where no value is finite and above zero."""
        known = [value for value in values if value is not None]
        exponents = [math.log10(value) for value in known if 0 < value < math.inf]
        if not exponents:
            return None
        low, high = math.floor(min(exponents)), math.ceil(max(exponents))
        return cls(min(low, high - 1), high, any(value == 0 for value in known), any(map(math.isinf, known)))

    def place(self, value: float | None) -> float | None:
        """Per cent from the left, rounded; None for None, NaN and negative numbers, which have no place."""
        if value is None or math.isnan(value) or value < 0:
            return None
        if value == 0:
            return LANE / 3
        if math.isinf(value):
            return 100 - LANE / 3
        return self._at(math.log10(value))

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels of at most eight ticks, decades and the two special places."""
        step = math.ceil((self.high - self.low) / (MAX_TICKS - 1))
        ticks: list[tuple[float, str]] = []
        if self.zero:
            ticks.append((LANE / 3, "0"))
        for exponent in range(self.low, self.high + 1, step):
            ticks.append((self._at(exponent), "1" if exponent == 0 else "10" if exponent == 1 else f"1e{exponent}"))
        if self.infinite:
            ticks.append((100 - LANE / 3, "inf"))
        return ticks

    def _at(self, exponent: float) -> float:
        start = LANE if self.zero else MARGIN
        end = 100 - (LANE if self.infinite else MARGIN)
        return round(start + (exponent - self.low) / (self.high - self.low) * (end - start), 2)
