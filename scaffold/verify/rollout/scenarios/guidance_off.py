"""No guidance on either side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 20
DTYPE = "float32"
CHECKS = equality("guidance-off", "Guidance switched off on both sides", (29,))


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """The scale that is not guidance."""
    recipe = bench.unguided
    yield from bench.equal(CHECKS, bench.compare(bench.roll_out(recipe), recipe))
