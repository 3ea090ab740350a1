"""A request that carries the data set's token ids, not the chat template's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 60
DTYPE = "float32"
CHECKS = equality("native-prompt", "A request with the data set's own token ids", (31, 43))


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Both forms must reach the model as the same ids."""
    samples = bench.roll_out(bench.recipe, bench.texts[:2], native=True)
    yield from bench.equal(CHECKS, bench.compare(samples, bench.recipe))
