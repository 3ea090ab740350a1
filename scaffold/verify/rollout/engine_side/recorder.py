"""Records the steps of the SDE scheduler on each side."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import relative

# Both sides compute the schedule in float32; two noise levels this near are one.
SAME_SIGMA = 1e-5


@dataclass(frozen=True)
class StepTaken:
    """One step: from the noise level ``sigma``, told as the timestep ``time``, to ``following``.

    Tensors are float32 copies ``(B, …)``; ``asked`` are the other arguments, ``given`` the next sample to score, and
    ``mean`` that of the step.
    """

    sigma: float
    following: float
    time: float
    sample: torch.Tensor
    velocity: torch.Tensor
    result: torch.Tensor
    asked: dict[str, Any] = field(default_factory=dict)
    given: torch.Tensor | None = None
    mean: torch.Tensor | None = None


@contextlib.contextmanager
def steps() -> Iterator[list[StepTaken]]:
    """Yield a list that fills with every SDE step taken inside the block.

    Both sides end in the same method: a step of the rollout goes by the scheduler's own index, training names the
    timestep.
    """
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler as Scheduler

    taken: list[StepTaken] = []
    original: Any = Scheduler.sample_previous_step
    signature = inspect.signature(original)

    def recording(self: Any, sample: Any, model_output: Any, timestep: Any = None, *args: Any, **kwargs: Any) -> Any:
        if timestep is None:
            index = int(self.step_index)
        else:
            first = torch.as_tensor(timestep).reshape(-1)[0]
            index = int((self.timesteps.to(first.device) - first).abs().argmin())
        levels = (float(self.sigmas[index]), float(self.sigmas[index + 1]), float(self.timesteps[index]))
        given = (sample.detach().float().clone(), model_output.detach().float().clone())
        bound = signature.bind(self, sample, model_output, timestep, *args, **kwargs)
        bound.apply_defaults()
        asked = {name: value for name, value in bound.arguments.items() if not isinstance(value, torch.Tensor)}
        after = bound.arguments.get("prev_sample")
        after = after.detach().float().clone() if isinstance(after, torch.Tensor) else None
        found = original(self, sample, model_output, timestep, *args, **kwargs)
        mean = found[2].detach().float().clone() if len(found) > 2 and isinstance(found[2], torch.Tensor) else None
        taken.append(StepTaken(*levels, *given, found[0].detach().float().clone(), asked, after, mean))
        return found

    with with_attribute(Scheduler, "sample_previous_step", recording):
        yield taken


@contextlib.contextmanager
def shifts() -> Iterator[list[float | None]]:
    """Yield a list that fills with the ``mu`` of every ``set_timesteps`` inside the block, None where there is none."""
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler as Scheduler

    given: list[float | None] = []
    original: Any = Scheduler.set_timesteps
    signature = inspect.signature(original)

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        mu = signature.bind(self, *args, **kwargs).arguments.get("mu")
        given.append(None if mu is None else float(mu))
        return original(self, *args, **kwargs)

    with with_attribute(Scheduler, "set_timesteps", recording):
        yield given


def step_at(taken: list[StepTaken], timestep: float) -> StepTaken | None:
    """Return the step of a recorded timestep, which says what the scheduler does or the noise level itself, or None."""
    for told in ("time", "sigma"):
        near = (step for step in taken if abs(getattr(step, told) - timestep) <= SAME_SIGMA * max(1.0, abs(timestep)))
        if found := next(near, None):
            return found
    return None


def from_plain(taken: list[StepTaken]) -> float | None:
    """Return the relative distance of the last latents from the noise-free integration; None without a step."""
    if not taken:
        return None
    expected = taken[0].sample.double()
    for step in taken:
        expected = expected + (step.following - step.sigma) * step.velocity.double()
    return relative(taken[-1].result, expected)


def step_of(taken: list[StepTaken], timestep: float, sample: torch.Tensor) -> StepTaken | None:
    """The same, and where the timestep is told in another way, the step that was given the recorded sample."""
    if (found := step_at(taken, timestep)) is not None:
        return found
    given = sample.detach().float().reshape(-1)
    alike = (step for step in taken if step.sample.numel() == given.numel())
    return next((step for step in alike if relative(step.sample.reshape(-1), given) <= SAME_SIGMA), None)
