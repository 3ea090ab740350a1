"""The scheduler of a composed package: steps in the units of its pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .steps import RecordingScheduler, StepOutput


class ComposedScheduler(RecordingScheduler):
    """Replaces the scheduler of a pipeline: steps, records, and checks the schedule.

    A package's ``step`` has the arguments that its pipeline gives, and hands them to :meth:`taken`.

    Attributes:
        single: latents come without a batch dimension.
        scale: standard deviation of the pipeline's noise; what is recorded and scored is divided by it.
        parts: the pipeline's timesteps are noise levels times this.
        rounded: its timesteps are integers.
        ascending: it reports ``1 - sigma``.
        joint: makes the velocity ``(1, …)`` of a step from its latents ``(1, …)``, its noise level and the velocity of
            the pipeline, in place of that one; None where the pipeline's is taken.
    """

    single = False
    scale = 1.0
    parts = 1
    rounded = False
    ascending = False
    joint: Callable[[Tensor, float, Tensor], Tensor] | None = None

    def scale_of(self, tokens: int) -> float:
        """``scale``, of an image of so many latent tokens."""
        return self.scale

    @property
    def timesteps(self) -> Tensor:
        """Noise levels as the pipeline counts them."""
        levels: Tensor = self.inner.timesteps.clamp(max=self.highest)
        return (levels.double() * self.parts).round().long() if self.rounded else levels * self.parts

    def following(self, scheduler: Any) -> Any:
        """Take the place of the scheduler that the pipeline has made for this request.

        Raises:
            RuntimeError: it walks other noise levels than training.
        """
        theirs, ours = torch.as_tensor(scheduler.timesteps).cpu().double(), self.timesteps.double()
        if theirs.shape != ours.shape or (theirs - ours).abs().max() > 1e-3:
            raise RuntimeError(
                f"the scheduler of {self.pipeline} walks {theirs.tolist()[:4]} … in {len(theirs)} steps, training"
                f" {ours.tolist()[:4]} … in {len(ours)}: the schedules differ"
            )
        return self

    def taken(
        self, velocity: Tensor, level: Tensor | float, sample: Tensor, generator: torch.Generator | None = None
    ) -> StepOutput:
        """Advance ``sample`` by one step of the schedule.

        Args:
            velocity: ``(1, …)`` or, where latents are single, ``(…)``, d x / d sigma in the pipeline's scale.
            level: noise level as the pipeline reports it; compared with the schedule at the end.
            sample: latents, shaped like the velocity.
            generator: draws the noise where the trajectory has no generator of its own.
        """
        scale, told = self.scale_of(sample.shape[-2]), torch.as_tensor(level, dtype=torch.float32) / self.parts
        velocity, sample = velocity.float() / scale, sample.float() / scale
        if self.single:
            velocity, sample = velocity[None], sample[None]
        if self.joint is not None and len(self._sigmas) < len(self.inner.timesteps):
            velocity = self.joint(sample, float(self.inner.timesteps[len(self._sigmas)]), velocity)
        prev_sample, log_prob = self.advance(velocity, 1 - told if self.ascending else told, sample, generator)
        if self.single:
            prev_sample, log_prob = prev_sample[0], None if log_prob is None else log_prob[0]
        return StepOutput(prev_sample * scale, log_prob)
