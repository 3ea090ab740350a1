"""Images that are not square, each way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 30
DTYPE = "float32"
WIDE = equality("wide", "An image wider than high")
HIGH = equality("high", "An image higher than wide")
CHECKS = WIDE + HIGH


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Rows and columns swapped on one side give other positions."""
    longer = bench.recipe.width * 3 // 2
    for pair, recipe in (
        (WIDE, replace(bench.recipe, width=longer)),
        (HIGH, replace(bench.recipe, height=longer)),
    ):
        samples = bench.roll_out(recipe, bench.texts[:1])
        yield from bench.equal(pair, bench.compare(samples, recipe))
