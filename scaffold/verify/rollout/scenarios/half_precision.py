"""bfloat16 on both sides, against what rounding alone gives in the same run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import HALF_PRECISION, Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

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

Differences = list[float]  # of rollout and training, of rollout and float32, of training and float32


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Recompute each rollout twice: in bfloat16, and in float32 with the same, already rounded, weights.

    The floor is what two computations differ by that are each as far from float32 as the better of the two sides:
    the square root of two times that distance. The worse side cannot raise it.

    Raises:
        RuntimeError: a trajectory is out of step, or a side's velocity was not seen.
    """
    log_probs, velocities = _differences(bench)
    count = len(velocities)
    for check, found in ((LOG_PROB, _alike(log_probs)), (VELOCITY, _root_mean_square(velocities))):
        between, rollout, training = found
        floor = 2**0.5 * min(rollout, training)
        told = f"from float32, the rollout is {rollout:.1e} away and training {training:.1e}; {count} steps"
        yield Measurement(check.id, between, told, floor=floor, limit=HALF_PRECISION * floor)


def _differences(bench: EngineUnderTest) -> tuple[list[list[Differences]], list[Differences]]:
    """Of the log-probs in nats, by step of a trajectory, and of the velocities, relative: every prompt once a seed."""
    import torch

    from scaffold.verify.rollout.engine_side import precision
    from scaffold.verify.rollout.engine_side.comparison import distance

    # float32 arithmetic on the weights that both sides have after rounding to bfloat16.
    exact = bench.training.copy(torch.float32)
    velocities: list[Differences] = []
    log_probs: dict[int, list[Differences]] = {}
    for seed in SEEDS:
        for sample in bench.roll_out(bench.recipe, seed=seed):
            if not sample.aligned or sample.log_probs is None:
                raise RuntimeError(f"{sample.recorded} log-probs were recorded for {sample.steps} steps")
            half = bench.training.recompute([sample], bench.recipe)
            with precision.exact(bench.adapters):
                full = exact.recompute([sample], bench.recipe)
            for step in range(sample.steps):
                seen, own, reference = sample.velocities[step], half.velocities[step], full.velocities[step]
                if seen is None or own is None or reference is None:
                    raise RuntimeError("no velocity of a side was seen at its SDE step")
                pairs = ((seen, own[0]), (seen, reference[0]), (own[0], reference[0]))
                velocities.append([distance(one, other) for one, other in pairs])
                numbers = (sample.log_probs[step], half.log_probs[0, step], full.log_probs[0, step])
                theirs, ours, right = map(float, numbers)
                log_probs.setdefault(step, []).append([theirs - ours, theirs - right, ours - right])
    return list(log_probs.values()), velocities


def _alike(steps: Sequence[Sequence[Differences]]) -> Differences:
    """Root mean squares of three differences in which each step of a trajectory has one weight.

    A log-prob divides by the step's own noise, so the last steps of a schedule are tens of times larger than the
    first; unweighted, a dozen numbers decide and rounding alone passes any limit now and then. A step is measured in
    the geometric mean of what the two sides are away from float32 there, the answer in the geometric mean of all
    steps: it is one number for all three, so that no side raises its own limit.
    """
    scales = []
    for rows in steps:
        _, rollout, training = _root_mean_square(rows)
        scales.append((rollout * training) ** 0.5 or max(rollout, training) or 1.0)
    unit = math.prod(scale ** (1 / len(scales)) for scale in scales)
    return _root_mean_square(
        [[value / scale * unit for value in row] for rows, scale in zip(steps, scales, strict=True) for row in rows]
    )


def _root_mean_square(rows: Sequence[Differences]) -> Differences:
    return [math.sqrt(sum(value * value for value in column) / len(column)) for column in zip(*rows, strict=True)]
