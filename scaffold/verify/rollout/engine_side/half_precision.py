"""How far each side in bfloat16 is from float32, and from the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from scaffold.verify.rollout.engine_side import precision
from scaffold.verify.rollout.engine_side.comparison import relative

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import Bench


@dataclass(frozen=True)
class Distances:
    """Root mean squares over ``count`` steps; log-probs in nats as ``_alike`` weighs them, velocities relative."""

    count: int
    log_prob: float
    rollout_log_prob: float
    training_log_prob: float
    velocity: float
    rollout_velocity: float
    training_velocity: float


def distances(bench: Bench, seeds: Sequence[int]) -> Distances:
    """Roll every prompt out once a seed and recompute the steps in both precisions.

    Raises:
        RuntimeError: a trajectory is out of step, or a side's velocity was not seen.
    """
    side = bench.training
    # float32 arithmetic on the weights that both sides have after rounding to bfloat16.
    exact = side.copy(torch.float32)
    velocities: list[list[float]] = []
    log_probs: dict[int, list[tuple[float, float, float]]] = {}
    for seed in seeds:
        for sample in bench.roll_out(bench.recipe, seed=seed):
            if not sample.aligned or sample.log_probs is None:
                raise RuntimeError(f"{sample.recorded} log-probs were recorded for {sample.steps} steps")
            half = side.recompute([sample], bench.recipe)
            with precision.exact(bench.adapters):
                full = exact.recompute([sample], bench.recipe)
            for step in range(sample.steps):
                seen = sample.velocities[step]
                parts = (
                    relative(seen, half.velocities[step], 0),
                    relative(seen, full.velocities[step], 0),
                    _between(half.velocities[step], full.velocities[step]),
                )
                values = [part for part in parts if part is not None]
                if len(values) != len(parts):
                    raise RuntimeError("no velocity of a side was seen at its SDE step")
                theirs, ours, reference = (
                    float(sample.log_probs[step]),
                    float(half.log_probs[0, step]),
                    float(full.log_probs[0, step]),
                )
                log_probs.setdefault(step, []).append((theirs - ours, theirs - reference, ours - reference))
                velocities.append(values)
    return Distances(len(velocities), *_alike(list(log_probs.values())), *_root_mean_square(velocities))


def _alike(steps: Sequence[Sequence[tuple[float, float, float]]]) -> list[float]:
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


def _root_mean_square(rows: Sequence[Sequence[float]]) -> list[float]:
    found: list[float] = torch.tensor(rows, dtype=torch.float64).pow(2).mean(dim=0).sqrt().tolist()
    return found


def _between(one: torch.Tensor | None, other: torch.Tensor | None) -> float | None:
    return None if one is None else relative(one[0][None], other, 0)
