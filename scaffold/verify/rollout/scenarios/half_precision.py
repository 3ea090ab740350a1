"""bfloat16 on both sides, against what rounding alone gives in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import HALF_PRECISION, Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import Bench

ORDER = 10
DTYPE = "bfloat16"
LOG_PROB = Check(
    "rollout-bf16-log-prob",
    "In bfloat16, log-probs of the two sides differ by no more than rounding makes them",
    None,
    "absolute, root mean square",
    (13,),
)
VELOCITY = Check(
    "rollout-bf16-velocity",
    "In bfloat16, velocities of the two sides differ by no more than rounding makes them",
    None,
    "relative, root mean square",
    (13,),
)
CHECKS = (LOG_PROB, VELOCITY)
SEEDS = (7, 17, 27, 37)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Recompute each rollout twice: in bfloat16, and in float32 with the same, already rounded, weights.

    The floor is what two computations differ by that are each as far from float32 as the better of the two sides:
    the square root of two times that distance. The worse side cannot raise it.
    """
    from scaffold.verify.rollout.engine_side.half_precision import distances

    found = distances(bench, SEEDS)
    for check, between, rollout, training in (
        (LOG_PROB, found.log_prob, found.rollout_log_prob, found.training_log_prob),
        (VELOCITY, found.velocity, found.rollout_velocity, found.training_velocity),
    ):
        floor = 2**0.5 * min(rollout, training)
        told = f"from float32, the rollout is {rollout:.1e} away and training {training:.1e}; {found.count} steps"
        yield Measurement(check.id, between, told, floor=floor, limit=HALF_PRECISION * floor)
