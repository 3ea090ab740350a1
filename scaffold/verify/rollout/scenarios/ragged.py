"""Prompts of different lengths in one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 50
DTYPE = "float32"
CHECKS = equality("ragged", "Prompts of different lengths in one padded batch", (1, 8, 9, 14))


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """The rollout runs each prompt by itself, training runs them together."""
    yield from bench.equal(CHECKS, bench.compare(bench.first, bench.recipe, together=True))
