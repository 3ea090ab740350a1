"""Records the velocity that each side hands to the SDE step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

# Both sides compute the schedule in float32; two noise levels this near are one.
SAME_SIGMA = 1e-5


@contextlib.contextmanager
def velocities() -> Iterator[list[tuple[float, torch.Tensor]]]:
    """Yield a list that fills with ``(sigma, velocity)`` for every SDE step taken inside the block.

    Velocities are float32 copies ``(B, …)``. Both sides end in the same method: a step of the rollout goes by the
    scheduler's own index, training names the timestep.
    """
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler as Scheduler

    taken: list[tuple[float, torch.Tensor]] = []
    original: Any = Scheduler.sample_previous_step

    def recording(self: Any, sample: Any, model_output: Any, timestep: Any = None, *args: Any, **kwargs: Any) -> Any:
        if timestep is None:
            sigma = float(self.sigmas[self.step_index])
        else:
            first = torch.as_tensor(timestep).reshape(-1)[0]
            sigma = float(self.sigmas[int((self.timesteps.to(first.device) - first).abs().argmin())])
        taken.append((sigma, model_output.detach().float().clone()))
        return original(self, sample, model_output, timestep, *args, **kwargs)

    Scheduler.sample_previous_step = recording
    try:
        yield taken
    finally:
        Scheduler.sample_previous_step = original


def at(taken: list[tuple[float, torch.Tensor]], sigma: float) -> torch.Tensor | None:
    """Return the velocity recorded at a noise level, or None."""
    return next((velocity for value, velocity in taken if abs(value - sigma) <= SAME_SIGMA), None)
