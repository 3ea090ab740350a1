"""Tuples of sizes that share out another size, such as the channels that each rotary axis has of a head."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """A tuple whose sum is a size, or one size divided by another.

    Attributes:
        parts: the tuple.
        whole: name of the size.
        divisor: name of what it is divided by; None where the sum is the size itself.
    """

    parts: tuple[int, ...]
    whole: str
    divisor: str | None

    def among(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The tuple for other sizes: in proportion, even where all its parts are, none of them zero."""
        total = values[self.whole] // (1 if self.divisor is None else max(1, values[self.divisor]))
        unit = 2 if all(part % 2 == 0 for part in self.parts) else 1
        found = [max(unit, total * part // sum(self.parts) // unit * unit) for part in self.parts]
        found[0] += total - sum(found)
        return tuple(found) if found[0] > 0 else self.parts


def share_of(parts: tuple[int, ...], values: Mapping[str, int]) -> Share | None:
    """What a tuple of sizes shares out; None where its sum is nothing that the sizes give.

    Args:
        parts: the tuple as it is.
        values: sizes by name, as they are.
    """
    total = sum(parts)
    for whole, divisor in itertools.permutations(values, 2):
        if values[divisor] > 1 and values[whole] == total * values[divisor]:
            return Share(parts, whole, divisor)
    return next((Share(parts, name, None) for name, value in values.items() if value == total), None)
