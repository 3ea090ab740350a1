"""Rollout against training, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from scaffold.verify.rollout.engine_side.training import Recomputed
from scaffold.verify.rollout.engine_side.trajectory import Trajectory


@dataclass(frozen=True)
class Step:
    """One step of one sample: two log-probs in nats, and the relative L2 distance of the velocities."""

    sample: int
    step: int
    rollout: float | None
    training: float
    velocity: float | None

    @property
    def difference(self) -> float:
        """Distance of the log-probs; infinite where the rollout has none."""
        return math.inf if self.rollout is None else abs(self.rollout - self.training)


@dataclass(frozen=True)
class Comparison:
    """All steps of some samples.

    Attributes:
        steps: of each sample in turn.
        problem: how a trajectory is misaligned, if one is, or how the schedules' shifts differ.
        misfit: which noise levels of the rollout training's schedule lacks, if any.
    """

    steps: tuple[Step, ...]
    problem: str | None = None
    misfit: str | None = None

    @property
    def log_prob(self) -> float:
        """Largest distance of log-probs; infinite where a trajectory is out of step, NaN where one is NaN."""
        return _largest(math.inf if self.problem else step.difference for step in self.steps)

    @property
    def velocity(self) -> float | None:
        """Largest relative distance of velocities; None where a side's were not seen."""
        values = [step.velocity for step in self.steps]
        return None if None in values or not values else _largest(value for value in values if value is not None)

    @property
    def floor(self) -> float:
        """Spacing of float32 at the largest log-prob."""
        return max((abs(step.training) for step in self.steps), default=1.0) * 2**-23

    @property
    def series(self) -> dict[str, list[float]]:
        """Log-probs of the first sample by step."""
        first = [step for step in self.steps if step.sample == 0 and step.rollout is not None]
        return {
            "rollout log-prob": [step.rollout for step in first if step.rollout is not None],
            "training log-prob": [step.training for step in first],
        }

    @property
    def where(self) -> str:
        """Sample and step of the largest distance of log-probs."""
        worst = max(self.steps, key=lambda step: step.difference)
        return f"prompt {worst.sample + 1}, step {worst.step + 1}"


def compare(samples: Sequence[Trajectory], recomputed: Recomputed) -> Comparison:
    """Compare the rollout's recorded steps with training's results from the same latents."""
    problem = next((sample.problem for sample in samples if not sample.aligned), recomputed.shifts)
    steps = []
    for row, sample in enumerate(samples):
        for step in range(sample.steps):
            known = sample.log_probs is not None and step < sample.recorded
            seen, own = sample.velocities[step], recomputed.velocities[step]
            steps.append(
                Step(
                    sample=row,
                    step=step,
                    rollout=float(sample.log_probs[step]) if known and sample.log_probs is not None else None,
                    training=float(recomputed.log_probs[row, step]),
                    velocity=None if seen is None or own is None else distance(seen, own[row]),
                )
            )
    return Comparison(tuple(steps), problem, recomputed.misfit)


def join(parts: Iterable[Comparison]) -> Comparison:
    """Join several comparisons into one, numbering the samples consecutively."""
    steps: list[Step] = []
    problem = misfit = None
    for part in parts:
        offset = steps[-1].sample + 1 if steps else 0
        steps += [Step(s.sample + offset, s.step, s.rollout, s.training, s.velocity) for s in part.steps]
        problem, misfit = problem or part.problem, misfit or part.misfit
    return Comparison(tuple(steps), problem, misfit)


def distance(rollout: torch.Tensor, training: torch.Tensor) -> float:
    """L2 distance of two velocities over the rollout's norm; infinite where their sizes differ."""
    ours, theirs = training.reshape(-1), rollout.reshape(-1)
    if ours.shape != theirs.shape:
        return math.inf
    return float((theirs - ours).norm() / theirs.norm().clamp_min(1e-12))


def _largest(values: Iterable[float]) -> float:
    """The largest value; NaN if any is, which ``max`` would lose."""
    found = list(values)
    return math.nan if any(math.isnan(value) for value in found) else max(found, default=math.nan)
