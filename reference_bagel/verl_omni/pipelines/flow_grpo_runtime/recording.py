# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Schedulers of the rollout: they step with noise inside a window, and record what training needs of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .calls import CallRecorder
from .model import INCLUDE_LOGPROB_NORMALIZER, Common

# How far a size of step or a noise level of the pipeline may lie from training's.
NEAR = 1e-5

Trajectory = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


class StepOutput(NamedTuple):
    """What a step returns: the next latents and the log-prob ``(1,)`` of the step, None where it has no noise."""

    prev_sample: torch.Tensor
    log_prob: torch.Tensor | None


class RecordingScheduler:
    """Steps along training's schedule, records inside of the window, and checks the pipeline's noise levels.

    Inside the window a step is stochastic and recorded, outside it is the plain Euler step. Latents, noise levels and
    log-probs are recorded together, so they cannot be out of step, and none of the pipeline's own trajectory is used.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        highest: the pipeline calls no noise level more than that, not even that of pure noise.
    """

    def __init__(self, common: Common, pipeline: str, *, highest: float = 1.0) -> None:
        self.common = common
        self.pipeline = pipeline
        self.highest = highest
        self.inner = FlowMatchSDEDiscreteScheduler()
        self.schedule_inputs: dict[str, Any] = {}  # what the schedule depends on besides the number of steps
        self._window: tuple[int, int] | None = None
        self._may_be_empty = False
        self._options: dict[str, Any] = {}
        self._generator: torch.Generator | None = None
        self._sigmas: list[torch.Tensor] = []
        self._latents: list[torch.Tensor] = []
        self._log_probs: list[torch.Tensor] = []

    def start(
        self,
        *,
        num_inference_steps: int,
        window: tuple[int, int] | None,
        noise_level: float,
        sde_type: str,
        record_log_probs: bool,
        generator: torch.Generator | None,
    ) -> None:
        """Start a trajectory.

        Args:
            num_inference_steps: what the request asks for; the schedule follows from it.
            window: steps ``[begin, end)`` to sample and record; None for all.
            noise_level: of the steps in the window; at 0, as in validation, nothing is recorded.
            sde_type: kind of the stochastic step.
            record_log_probs: whether log-probs are asked for.
            generator: draws the noise of steps that bring none.

        Raises:
            ValueError: the window lies outside the schedule.
        """
        count = len(self.common.setup_sigmas(self.inner, num_inference_steps, **self.schedule_inputs))
        begin, end = (window or (0, count)) if noise_level > 0.0 else (0, 0)
        if noise_level > 0.0 and not 0 <= begin < end <= count:
            raise ValueError(f"SDE window [{begin}, {end}) does not lie in the {count} steps of {num_inference_steps=}")
        self._window = (begin, end)
        self._may_be_empty = num_inference_steps == 1  # the engine's warm-up, which some releases run without a step
        self._options = {"noise_level": noise_level, "sde_type": sde_type, "return_logprobs": record_log_probs}
        self._generator = generator
        self._sigmas, self._latents, self._log_probs = [], [], []

    def advance(
        self,
        velocity: torch.Tensor,
        level: torch.Tensor | float,
        sample: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> StepOutput:
        """Advance ``sample`` by one step of the schedule.

        Args:
            velocity: ``(1, …)``, d x / d sigma.
            level: noise level that the pipeline reports; compared with the schedule at the end.
            sample: latents, shaped like the velocity.
            generator: draws the noise in place of the trajectory's.

        Raises:
            RuntimeError: the pipeline takes more steps than training knows, or no trajectory was started.
        """
        if self._window is None:
            raise RuntimeError(f"{self.pipeline} takes a step outside of the rollout adapter's forward()")
        index, (begin, end) = len(self._sigmas), self._window
        if index >= len(self.inner.timesteps):
            raise RuntimeError(f"{self.pipeline} takes more than the {index} steps of the training schedule")
        inside = begin <= index < end
        options = self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}
        sample = sample.float()
        prev_sample, log_prob, _, _ = self.inner.step(
            model_output=velocity.float(),
            timestep=self.inner.timesteps[index],
            sample=sample,
            generator=generator or self._generator,
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
            return_dict=False,
            **options,
        )
        self._sigmas.append(torch.as_tensor(level, dtype=torch.float32).detach())
        if inside:
            if not self._latents:
                self._latents.append(sample)
            self._latents.append(prev_sample)
            if log_prob is not None:
                self._log_probs.append(log_prob)
        return StepOutput(prev_sample, log_prob)

    def end(self) -> Trajectory:
        """End the trajectory.

        Returns:
            ``latents (1, W + 1, …)``, ``timesteps (1, W)`` and ``log_probs (1, W)`` on the CPU, for a window of W
            steps; log_probs is None where none were asked for, all are None without noise or without a step.

        Raises:
            RuntimeError: the pipeline's noise levels are not those of the training schedule.
        """
        if self._window is None:
            raise RuntimeError("no trajectory was started")
        (begin, end), self._window = self._window, None
        if not self._sigmas and self._may_be_empty:
            return None, None, None
        expected = self.inner.timesteps.cpu()
        seen = torch.stack([sigma.reshape(()).cpu() for sigma in self._sigmas]) if self._sigmas else expected[:0]
        if seen.shape != expected.shape:
            raise RuntimeError(
                f"{self.pipeline} took {len(seen)} steps, training takes {len(expected)}: the step count of this"
                " vllm-omni release differs from the one this package was made for"
            )
        told = expected.clamp(max=self.highest)
        wrong = (seen - told).abs() > NEAR
        if wrong.any():
            step = int(wrong.nonzero()[0])
            raise RuntimeError(
                f"{self.pipeline} was at noise level {seen[step]:.6f} in step {step}, training expects"
                f" {told[step]:.6f}: the schedules differ (shift or number of steps)"
            )
        if not self._latents:
            return None, None, None
        latents = torch.stack(self._latents, dim=1).float().cpu()
        timesteps = expected[begin:end][None].float()
        log_probs = torch.stack(self._log_probs, dim=1).float().cpu() if self._log_probs else None
        return latents, timesteps, log_probs


class FollowingScheduler(RecordingScheduler):
    """Steps in the place of what a pipeline steps with, and asks it at each step what it would have done.

    So a schedule that differs from training's is an error here and no wrong ratio there. Latents stay float32 from
    step to step, whatever the pipeline rounds them to.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        first: what the pipeline calls the level of pure noise, where it is not 1.
    """

    NEAR_FIRST = 1e-3  # how far the first step may lie from training's, where ``first`` is not 1

    def __init__(self, common: Common, pipeline: str, *, first: float | None = None) -> None:
        super().__init__(common, pipeline)
        self.calls = CallRecorder(common.CALLS)
        self.guidance: dict[str, Any] = {}
        self.model_path = ""
        self.first = first
        self._asked: dict[str, Any] | None = None
        self._own: torch.Tensor | None = None
        self._sign = 0

    def begin(self, *, record_calls: bool = True, **asked: Any) -> None:
        """Start a trajectory; the schedule is made at the first step, when the size of the latents is known.

        Args:
            record_calls: whether the calls of a denoiser are watched.
            asked: arguments of :meth:`RecordingScheduler.start`.
        """
        self._asked, self._own, self._window = asked, None, None
        self.calls.begin(active=record_calls and asked["noise_level"] > 0.0)

    def _started(self, sample: torch.Tensor) -> tuple[int, torch.Tensor, tuple[int, int]]:
        """Number of the step, training's noise levels, and the window."""
        if self._asked is not None:
            self.schedule_inputs = {"latent_size": tuple(sample.shape[-2:]), "model_path": self.model_path}
            asked, self._asked = self._asked, None
            self.start(**asked)
        if self._window is None:
            raise RuntimeError(f"{self.pipeline} takes a step outside of the rollout adapter's forward()")
        return len(self._sigmas), self.inner.sigmas, self._window

    def _near(self, index: int) -> float:
        return self.NEAR_FIRST if self.first is not None and index == 0 else NEAR

    def _current(self, sample: torch.Tensor) -> torch.Tensor:
        """The float32 latents that ``sample`` is the pipeline's rounding of."""
        if self._own is None:
            return sample.detach().to(torch.float32, copy=True)
        if self._own.shape != sample.shape or not torch.equal(self._own.to(sample.dtype), sample):
            raise RuntimeError(
                f"{self.pipeline} changes the latents between steps (to restore a part that is given, say), of which"
                " the log-prob of a step knows nothing"
            )
        return self._own

    def _guide(self, conditional: torch.Tensor, unconditional: torch.Tensor | None) -> torch.Tensor:
        """What training makes of the predictions of this step."""
        common = self.common
        if unconditional is None:
            return common.to_velocity(conditional)
        levels = self.inner.sigmas[:-1]
        return common.guide(
            common.to_velocity(conditional),
            common.to_velocity(unconditional),
            self.guidance,
            sigma=levels[len(self._sigmas)].reshape(1).to(conditional.device),
            schedule=levels.tolist(),
        )

    def finish(self, *, warm_up: bool = False) -> Trajectory:
        """End the trajectory; all three are None without noise, and after a warm-up without a step.

        Args:
            warm_up: whether the request was the engine's own, for which a pipeline may take no step.

        Returns:
            See :meth:`RecordingScheduler.end`.

        Raises:
            RuntimeError: the pipeline took no step, or another number of them than training.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            return self.end()
        if asked["num_inference_steps"] > 1 and not warm_up:
            raise RuntimeError(f"{self.pipeline} took no step with {type(self).__name__}")
        return None, None, None


class SchedulerInPlace(FollowingScheduler):
    """Takes the place of a scheduler object of the pipeline, and is that scheduler in everything but its steps.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        first: what the pipeline calls the level of pure noise, where it is not 1.
        ends_at_zero: the pipeline's last turn stands at level 0 already, and must change nothing.
        single: latents come without a batch dimension.
    """

    def __init__(
        self,
        common: Common,
        pipeline: str,
        *,
        first: float | None = None,
        ends_at_zero: bool = False,
        single: bool = False,
    ) -> None:
        super().__init__(common, pipeline, first=first)
        self.ends_at_zero = ends_at_zero
        self.single = single
        self._followed: Any = None

    def following(self, scheduler: Any) -> SchedulerInPlace:
        """Take the place of a scheduler that the pipeline has made."""
        if scheduler is not self:
            self.__dict__["_followed"] = scheduler
        return self

    def __getattr__(self, name: str) -> Any:
        followed = self.__dict__.get("_followed")
        if followed is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(followed, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_followed") is not None and name not in self.__dict__:
            setattr(self._followed, name, value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> SchedulerInPlace:
        return self

    def step(
        self,
        model_output: torch.Tensor,
        timestep: torch.Tensor | float,
        sample: torch.Tensor,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> StepOutput:
        """Advance ``sample`` by one step of the schedule.

        Args:
            model_output: what the pipeline gives its own scheduler.
            timestep: as the pipeline's own scheduler counts it.
            sample: ``(1, …)`` latents, or without the first dimension where they are single.
            generator: draws the noise.
            return_dict: not used; the result has ``prev_sample`` and is a tuple too.

        Returns:
            The next latents in the wider of both dtypes, and the step's log-prob.

        Raises:
            RuntimeError: the pipeline follows another schedule or other guidance than training, or it changes the
                latents between steps.
        """
        return self._step(
            model_output, sample, generator, lambda index, change, x: self._compare(index, change, timestep, x)
        )

    def _step(
        self,
        model_output: torch.Tensor,
        sample: torch.Tensor,
        generator: torch.Generator | None,
        compare: Callable[[int, float, torch.Tensor], None],
    ) -> StepOutput:
        if self.single:
            model_output, sample = model_output[None], sample[None]
        index, levels, window = self._started(sample)
        if self.ends_at_zero and index == len(levels) - 1:
            compare(index, 0.0, sample)
            own = self._current(sample)
            return StepOutput(self.calls.step(own, own, self._guide, keep=False).to(sample.dtype, copy=True), None)
        if index + 1 < len(levels):
            compare(index, float(levels[index + 1] - levels[index]), sample)
        own, velocity = self._current(sample), self._sign * model_output.float()
        velocity = self.calls.step(own, velocity, self._guide, keep=window[0] <= index < window[1])
        prev_sample, log_prob = self.advance(velocity, levels[min(index, len(levels) - 2)], own, generator)
        self._own = prev_sample
        moved = prev_sample[0] if self.single else prev_sample
        # A copy: the pipeline may change in place what it gets, and the trajectory must stay.
        return StepOutput(moved.to(torch.promote_types(sample.dtype, model_output.dtype), copy=True), log_prob)

    def _compare(self, index: int, change: float, timestep: torch.Tensor | float, sample: torch.Tensor) -> None:
        """Ask a copy of the pipeline's scheduler for the step from latents 0 with velocity 1, and from 1 with 0."""
        theirs = copy.deepcopy(self._followed)
        if hasattr(theirs, "set_begin_index"):
            theirs.set_begin_index((theirs.begin_index or 0) + index)
        velocity = sample.new_tensor([1.0, 0.0], dtype=torch.float32).reshape(2, *[1] * (sample.ndim - 1))
        moved, stays = theirs.step(velocity, timestep, 1 - velocity, return_dict=False)[0].flatten().tolist()
        sign = 1 if abs(moved - change) <= abs(moved + change) else -1
        if index == 0:
            self._sign = sign
        elif change == 0.0:
            sign = self._sign
        if abs(moved - sign * change) > self._near(index) or abs(stays - 1.0) > 1e-4 or sign != self._sign:
            raise RuntimeError(
                f"in step {index} the scheduler of {self.pipeline} makes {stays:.6f} x + {moved:.6f} v of the"
                f" latents x, training x + {self._sign * change:.6f} v: the schedules differ"
            )


class DifferenceInPlace(SchedulerInPlace):
    """The same for a scheduler whose steps are given the difference of two noise levels.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        sign: of the velocity in what the pipeline gives its scheduler.
        first: what the pipeline calls the level of pure noise, where it is not 1.
        single: latents come without a batch dimension.
    """

    def __init__(
        self, common: Common, pipeline: str, *, sign: int, first: float | None = None, single: bool = False
    ) -> None:
        super().__init__(common, pipeline, first=first, single=single)
        self._sign = sign

    def step(  # type: ignore[override]
        self,
        model_output: torch.Tensor,
        timestep: torch.Tensor | float,
        sample: torch.Tensor,
        dt: torch.Tensor | float,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> StepOutput:
        """Advance ``sample`` by one step of the schedule; ``dt`` is the difference of two of the pipeline's levels."""

        def compare(index: int, change: float, _: torch.Tensor) -> None:
            if abs(abs(float(dt)) - abs(change)) > NEAR:
                raise RuntimeError(
                    f"in step {index} {self.pipeline} goes from one noise level to the next by {abs(float(dt)):.6f},"
                    f" training by {abs(change):.6f}: the schedules differ"
                )

        return self._step(model_output, sample, generator, compare)


class UpdateInPlace(FollowingScheduler):
    """Steps in the place of an update that stands in a loop of the pipeline."""

    NEAR_FIRST = 2e-3

    def update(
        self,
        own_update: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        sample: torch.Tensor,
        output: torch.Tensor,
    ) -> torch.Tensor:
        """Advance ``sample`` by one step of the schedule.

        Args:
            own_update: the pipeline's own: the next latents from latents and prediction, for each element by itself.
            sample: ``(1, …)`` latents.
            output: what the pipeline takes its step with, shape of ``sample``.

        Returns:
            The next latents in the dtype of ``sample``. Elements that the pipeline leaves as they are, those of a frame
            that is given, say, are no part of the step.

        Raises:
            RuntimeError: the pipeline follows another schedule or other guidance than training, or it changes the
                latents between steps.
        """
        index, levels, window = self._started(sample)
        if index + 1 >= len(levels):
            raise RuntimeError(f"{self.pipeline} takes more than the {index} steps of the training schedule")
        inside = window[0] <= index < window[1]
        own = self._current(sample)
        free = self._compare(own_update, index, float(levels[index + 1] - levels[index]), own)
        if not free.any():
            return self._left_out(index, inside, sample)
        velocity = self._sign * output.float()
        velocity = self.calls.step(own, velocity, self._guide, keep=inside, free=None if free.all() else free)
        if free.all():
            moved = self.advance(velocity, levels[index], own).prev_sample
        else:
            moved = own.clone()
            moved[free] = self.advance(velocity[free][None], levels[index], own[free][None]).prev_sample[0]
            if inside:  # the trajectory keeps the latents as a whole
                self._latents[-1] = moved
                if len(self._latents) == 2:
                    self._latents[0] = own
        self._own = moved
        # A copy: the pipeline may change in place what it gets, and the trajectory must stay.
        return moved.to(sample.dtype, copy=True)

    def _compare(
        self,
        own_update: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        index: int,
        change: float,
        like: torch.Tensor,
    ) -> torch.Tensor:
        """Ask the pipeline's update for the step from latents 1 with velocities 1 and 2; True where it takes one."""
        ones = torch.ones_like(like)
        velocity = ones + (torch.arange(like.numel(), device=like.device) % 2).reshape(like.shape)
        moved = own_update(ones, velocity.clone()).float() - 1
        free = moved != 0
        if not free.any():
            return free
        largest = moved.flatten()[moved.abs().argmax()]
        sign = 1 if float(largest) * change > 0 else -1
        if index == 0 or not self._sign:
            self._sign = sign
        wrong = (moved - sign * change * velocity).abs()[free]
        if wrong.max() > self._near(index) or sign != self._sign:
            raise RuntimeError(
                f"in step {index} {self.pipeline} changes latents by {float(largest):.6f} with a velocity of 1 or 2,"
                f" training by {sign * change:.6f} times the velocity: the schedules differ, or its step is none of"
                " Euler's"
            )
        return free

    def _left_out(self, index: int, inside: bool, sample: torch.Tensor) -> torch.Tensor:
        """A step that the pipeline does not take; the next one begins at the same latents."""
        if inside:
            raise RuntimeError(
                f"{self.pipeline} leaves all latents as they are in step {index} with latents in {sample.dtype}, so"
                " there is no log-prob: begin sde_window_range behind it"
            )
        self.calls.step(sample, sample, self._guide, keep=False)
        self._sigmas.append(self.inner.timesteps[index].detach().cpu())
        self.inner._step_index = index + 1
        return sample
