"""All trainable parameters change and are sent; the rollout follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, control, control_measurement, equality
from scaffold.verify.rollout.scenarios.together import after_push

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 90
DTYPE = "float32"
PAIR = equality("weight-sync", "After a weight sync of all trained parameters")
STALE = control("stale-weights", "weights that were trained and not sent")
TOGETHER = Check(
    "rollout-together-weight-sync",
    "Requests of one batch follow a weight sync as each does alone",
    LOG_PROB,
    "absolute",
)
CHECKS = (STALE, *PAIR, TOGETHER)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Change, compare with the old rollout, send, compare with a new one, send the old weights back."""
    training = bench.training.copy()
    changed = training.change_trainable(bench.recipe)
    yield control_measurement(STALE, bench.compare(bench.first, bench.recipe, training=training).log_prob)
    weights = training.base_weights()
    try:
        bench.engine.sync(weights)
        samples = bench.roll_out(bench.recipe, bench.texts[:2])
        log_prob, velocity = bench.equal(PAIR, bench.compare(samples, bench.recipe, training=training))
        told = f"{len(changed)} parameters changed, {len(weights)} tensors sent"
        yield replace(log_prob, reason=f"{told}; {log_prob.reason}")
        yield velocity
        yield after_push(bench, TOGETHER, training)
    finally:
        bench.engine.sync(bench.training.base_weights())
