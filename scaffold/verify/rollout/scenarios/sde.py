"""The three forms of the stochastic step, with the package's own settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import LOG_PROB, Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.recorder import StepTaken

ORDER = 10
DTYPE = "float32"
PITFALLS = (5, 7, 13, 29, 30, 31, 44)
TYPES = ("sde", "cps", "dance_sde")
PAIRS = {kind: equality(kind.replace("_", "-"), f"{kind} steps", PITFALLS) for kind in TYPES}
# float32 itself leaves less of some steps: how much is measured with the run's own numbers.
PAIRS["dance_sde"] = replace(PAIRS["dance_sde"][0], limit=None), PAIRS["dance_sde"][1]
CHECKS = tuple(check for pair in PAIRS.values() for check in pair)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Compare every prompt by itself."""
    from scaffold.verify.rollout.engine_side import recorder

    for kind, pair in PAIRS.items():
        recipe = replace(bench.recipe, sde_type=kind)
        samples = bench.first if recipe == bench.recipe else bench.roll_out(recipe)
        with recorder.steps() as taken:
            found = bench.compare(samples, recipe)
        log_prob, velocity = bench.equal(pair, found)
        if pair[0].limit is None:
            log_prob = limited(log_prob, [step.difference for step in found.steps], taken, recipe.noise_level)
        yield from (log_prob, velocity)


def limited(found: Measurement, apart: Sequence[float], taken: Sequence[StepTaken], noise: float) -> Measurement:
    """The same with a limit: that of the step that is worst against its own.

    Args:
        found: the largest difference of all steps.
        apart: the difference of each.
        taken: these steps as training scored them.
        noise: eta.
    """
    from scaffold.verify.formulas import log_prob_limit

    if found.value is None or not math.isfinite(found.value) or len(apart) != len(taken):
        return replace(found, limit=LOG_PROB)
    limits = [log_prob_limit("dance_sde", LOG_PROB, step, noise) for step in taken]
    worst = max(range(len(apart)), key=lambda at: apart[at] / limits[at])
    told = (
        f"{found.reason}; float32 itself allows {max(limits):.1e} at level {taken[limits.index(max(limits))].sigma:g}"
    )
    return replace(found, value=apart[worst], limit=limits[worst], reason=told)
