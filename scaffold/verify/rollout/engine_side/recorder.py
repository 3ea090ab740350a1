"""Records the steps of the SDE scheduler on each side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from scaffold.verify.formulas import relative

# Both sides compute the schedule in float32; two noise levels this near are one.
SAME_SIGMA = 1e-5


@dataclass(frozen=True)
class StepTaken:
    """One step: from the noise level ``sigma`` to ``following``; tensors are float32 copies ``(B, …)``."""

    sigma: float
    following: float
    sample: torch.Tensor
    velocity: torch.Tensor
    result: torch.Tensor


@contextlib.contextmanager
def steps() -> Iterator[list[StepTaken]]:
    """Yield a list that fills with every SDE step taken inside the block.

    Both sides end in the same method: a step of the rollout goes by the scheduler's own index, training names the
    timestep.
    """
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler as Scheduler

    taken: list[StepTaken] = []
    original: Any = Scheduler.sample_previous_step

    def recording(self: Any, sample: Any, model_output: Any, timestep: Any = None, *args: Any, **kwargs: Any) -> Any:
        if timestep is None:
            index = int(self.step_index)
        else:
            first = torch.as_tensor(timestep).reshape(-1)[0]
            index = int((self.timesteps.to(first.device) - first).abs().argmin())
        levels = (float(self.sigmas[index]), float(self.sigmas[index + 1]))
        given = (sample.detach().float().clone(), model_output.detach().float().clone())
        found = original(self, sample, model_output, timestep, *args, **kwargs)
        taken.append(StepTaken(*levels, *given, found[0].detach().float().clone()))
        return found

    with mock.patch.object(Scheduler, "sample_previous_step", recording):
        yield taken


def velocity_at(taken: list[StepTaken], sigma: float) -> torch.Tensor | None:
    """Return the velocity recorded at a noise level, or None."""
    return next((step.velocity for step in taken if abs(step.sigma - sigma) <= SAME_SIGMA), None)


def from_plain(taken: list[StepTaken]) -> float | None:
    """How far the last latents are, relative, from the plain integration of the velocities; None without a step."""
    if not taken:
        return None
    expected = taken[0].sample.double()
    for step in taken:
        expected = expected + (step.following - step.sigma) * step.velocity.double()
    return relative(taken[-1].result, expected)
