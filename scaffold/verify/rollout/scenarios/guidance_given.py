"""Guidance that the configuration gives, in place of the package's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 25
DTYPE = "float32"
CHECKS = equality("guidance-given", "Another guidance scale on both sides", (29,))


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Half the package's own scale, and a half; other scales are the package's own."""
    scale = bench.task.facts["guidance"]["scale"]
    if scale is None:
        yield from (Measurement(check.id, None, "no scale of guidance is known", skipped=True) for check in CHECKS)
        return
    recipe = bench.guided(scale / 2 + 0.5)
    others = bench.task.facts["guidance"].get("others") or {}
    recipe = replace(recipe, guidance={name: value for name, value in recipe.guidance.items() if name not in others})
    yield from bench.equal(CHECKS, bench.compare(bench.roll_out(recipe), recipe))
