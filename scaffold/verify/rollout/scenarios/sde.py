"""The three forms of the stochastic step, with the package's own settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 10
DTYPE = "float32"
PITFALLS = (5, 7, 13, 29, 30, 31, 44)
TYPES = ("sde", "cps", "dance_sde")
PAIRS = {kind: equality(kind.replace("_", "-"), f"{kind} steps", PITFALLS) for kind in TYPES}
CHECKS = tuple(check for pair in PAIRS.values() for check in pair)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Compare every prompt by itself."""
    for kind, pair in PAIRS.items():
        recipe = replace(bench.recipe, sde_type=kind)
        samples = bench.first if recipe == bench.recipe else bench.roll_out(recipe)
        yield from bench.equal(pair, bench.compare(samples, recipe))
