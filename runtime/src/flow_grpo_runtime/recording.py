"""Schedulers that stand in a pipeline's place, or follow its update, and record what training needs."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .calls import CallRecorder
from .model import Common
from .records import carry_levels
from .steps import NEAR, RecordingScheduler, StepOutput, Trajectory


class FollowingScheduler(RecordingScheduler):
    """Steps in the place of what a pipeline steps with, and asks it at each step what it would have done.

    Noise levels are learnt from its steps and travel with the record. Latents stay float32 from step to step, whatever
    the pipeline rounds them to.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        first: what the pipeline calls the level of pure noise, where it is not 1.
    """

    NEAR_FIRST = 2e-3  # how far the first step may lie from training's, where ``first`` is not 1

    def __init__(self, common: Common, pipeline: str, *, first: float | None = None) -> None:
        super().__init__(common, pipeline)
        self.calls = CallRecorder(common.CALLS)
        self.levels: list[float] = []  # that the pipeline was seen to step through, the next one included
        self.first = first
        self._asked: dict[str, Any] | None = None
        self._own: torch.Tensor | None = None
        self._device: torch.device | None = None
        self._sign = 0

    def begin(self, *, record_calls: bool = True, **asked: Any) -> None:
        """Start a trajectory; the schedule is made at the first step, when the size of the latents is known.

        Args:
            record_calls: whether the calls of a denoiser are watched.
            asked: arguments of :meth:`RecordingScheduler.start`.
        """
        self._asked, self._own, self._window, self.levels = asked, None, None, []
        self.calls.begin(active=record_calls and (asked["noise_level"] > 0.0 or asked.get("plain", False)))

    def _started(self, sample: torch.Tensor) -> tuple[int, tuple[int, int]]:
        """Number of the step, and the window."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            self.start(**asked)
            self._device = sample.device
        if self._window is None:
            raise RuntimeError(f"{self.pipeline} takes a step outside of the rollout adapter's forward()")
        return len(self._sigmas), self._window

    def _set_levels(self, num_inference_steps: int) -> int:
        """The steps are followed one by one: how many they are shows at the end."""
        return sys.maxsize

    def _learn(self, index: int, change: float, own: Sequence[float] = ()) -> None:
        """Take the next noise level from what the pipeline was seen to do.

        Args:
            index: number of the step.
            change: by how much the pipeline lowers the noise level in it, more than 0.
            own: all noise levels, as the pipeline's scheduler holds them; none where it does not.

        Raises:
            RuntimeError: the pipeline begins below pure noise, or steps below level 0.
        """
        fits = len(own) > index + 1 and abs(own[index] - own[index + 1] - change) < NEAR
        if index == 0:
            first = own[0] if fits else self.first if self.first is not None else 1.0
            if abs(1.0 - first) > self.NEAR_FIRST:
                raise RuntimeError(
                    f"{self.pipeline} begins to denoise at noise level {first:.6f}: training knows trajectories from"
                    " pure noise alone, level 1 (leave out strength and what else begins in between)"
                )
            self.levels = [first]
        following = own[index + 1] if fits else self.levels[index] - change
        if following < -self.NEAR_FIRST:
            raise RuntimeError(f"{self.pipeline} goes from noise level {self.levels[index]:.6f} to {following:.6f}")
        self.levels.append(following if following > NEAR else 0.0)
        # Next to 1 the noise of a step has no bound; at 1 itself verl-omni's scheduler knows one.
        carry_levels(self.inner, torch.tensor([1.0, *self.levels[1:]]), self._device)
        self.inner._step_index = index

    def _follow_on(self) -> None:
        """What the pipeline keeps of a prediction is followed to its next step, where there is one."""
        if self.levels[-1] > NEAR:
            self.calls.between()

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

    def finish(self, *, warm_up: bool = False) -> Trajectory:
        """End the trajectory; all three are None without noise, and after a warm-up without a step.

        Args:
            warm_up: whether the request was the engine's own, for which a pipeline may take no step.

        Returns:
            See :meth:`RecordingScheduler.end`.

        Raises:
            RuntimeError: the pipeline took no step, or another number of them than training.
        """
        self.calls.pause()
        asked, self._asked = self._asked, None
        if asked is None:
            if self._window is not None and self._sigmas:
                self._require_window(self._window)
            return self.end()
        if asked["num_inference_steps"] > 1 and not warm_up:
            raise RuntimeError(f"{self.pipeline} took no step with {type(self).__name__}")
        return None, None, None

    def _require_window(self, window: tuple[int, int]) -> None:
        """The trajectory ends without noise, and all of the window lies in it."""
        if self.levels[-1] > self.NEAR_FIRST:
            raise RuntimeError(
                f"{self.pipeline} ended at noise level {self.levels[-1]:.6f}: it begins below level 1, or takes steps"
                " that are not recorded"
            )
        if len(self._sigmas) < window[1] < sys.maxsize:
            raise RuntimeError(f"SDE window {list(window)} does not lie in the {len(self._sigmas)} steps taken")


class SchedulerInPlace(FollowingScheduler):
    """Takes the place of a scheduler object of the pipeline, and is that scheduler in everything but its steps.

    Args:
        common: what training shares.
        pipeline: name of the pipeline's class, for messages.
        first: what the pipeline calls the level of pure noise, where it is not 1.
        single: latents come without a batch dimension.
    """

    def __init__(self, common: Common, pipeline: str, *, first: float | None = None, single: bool = False) -> None:
        super().__init__(common, pipeline, first=first)
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
            RuntimeError: the pipeline's step is none of Euler's, or it changes the latents between steps.
        """
        return self._step(model_output, sample, generator, lambda x: self._probed(timestep, x))

    def _step(
        self,
        model_output: torch.Tensor,
        sample: torch.Tensor,
        generator: torch.Generator | None,
        probe: Callable[[torch.Tensor], float],
    ) -> StepOutput:
        self.calls.pause()
        target = model_output
        if self.single:
            model_output, sample = model_output[None], sample[None]
        index, window = self._started(sample)
        change = probe(sample)
        if change == 0.0 and index and self.levels[index] <= NEAR:
            self.calls.step(sample, sample, keep=False)
            return StepOutput(self._current(sample).to(sample.dtype, copy=True), None)
        if change == 0.0:
            raise RuntimeError(f"{self.pipeline} takes a step that changes nothing, number {index}")
        self._learn(index, change, self._own_levels())
        levels = self.inner.sigmas
        own, velocity = self._current(sample), self._sign * model_output.float()
        in_window = window[0] <= index < window[1]
        velocity = self.calls.step(own, velocity, keep=in_window, target=target, sign=self._sign)
        prev_sample, log_prob = self.advance(velocity, levels[index], own, generator)
        self._own = prev_sample
        moved = prev_sample[0] if self.single else prev_sample
        # A copy: the pipeline may change in place what it gets, and the trajectory must stay.
        output = StepOutput(moved.to(torch.promote_types(sample.dtype, model_output.dtype), copy=True), log_prob)
        self._follow_on()
        return output

    def _own_levels(self) -> Sequence[float]:
        """All noise levels from the first step on, as the pipeline's scheduler holds them."""
        begin = int(getattr(self._followed, "begin_index", None) or 0)
        found = getattr(self._followed, "sigmas", None)
        return [float(level) for level in found][begin:] if found is not None else ()

    def _probed(self, timestep: torch.Tensor | float, sample: torch.Tensor) -> float:
        """By how much the pipeline's scheduler lowers the noise level in this step.

        Raises:
            RuntimeError: its step is none of Euler's, or the velocity has another sign than before.
        """
        index = len(self._sigmas)
        moved, stays = self._theirs(index, timestep, sample)
        sign = self._sign if moved == 0.0 and index else -1 if moved > 0 else 1
        if index == 0:
            self._sign = sign
        if abs(stays - 1.0) > 1e-4 or sign != self._sign:
            raise RuntimeError(
                f"in step {index} the scheduler of {self.pipeline} makes {stays:.6f} x + {moved:.6f} v of the latents x"
                " and the output v: that is no step of Euler's, of which training knows the log-prob"
            )
        return abs(moved)

    def _theirs(self, index: int, timestep: torch.Tensor | float, sample: torch.Tensor) -> tuple[float, float]:
        """Ask a copy of the pipeline's scheduler for the step from latents 0 with velocity 1, and from 1 with 0."""
        theirs = copy.deepcopy(self._followed)  # a new one each time: some rest on the steps before
        if hasattr(theirs, "set_begin_index"):
            theirs.set_begin_index((theirs.begin_index or 0) + index)
        velocity = sample.new_tensor([1.0, 0.0], dtype=torch.float32).reshape(2, *[1] * (sample.ndim - 1))
        moved, stays = theirs.step(velocity, timestep, 1 - velocity, return_dict=False)[0].flatten().tolist()
        return moved, stays


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
        return self._step(model_output, sample, generator, lambda _: abs(float(dt)))


class UpdateInPlace(FollowingScheduler):
    """Steps in the place of an update that stands in a loop of the pipeline."""

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
            RuntimeError: the pipeline's update is none of Euler's, or it changes the latents between steps.
        """
        self.calls.pause()
        index, window = self._started(sample)
        own, own_levels = self._current(sample), _closure_levels(own_update)
        change = float(own_update(torch.zeros_like(own), torch.ones_like(own)).float().abs().max())
        if change == 0.0 and len(own_levels) > index + 1 and own_levels[index] > own_levels[index + 1]:
            # Its scheduler goes on to the next level; the pipeline drops what that made of the latents.
            change = own_levels[index] - own_levels[index + 1]
        if change == 0.0:
            raise RuntimeError(f"{self.pipeline} takes a step that changes nothing, number {index}")
        self._learn(index, change, own_levels)
        levels = self.inner.sigmas
        in_window = window[0] <= index < window[1]
        free = self._compare(own_update, index, float(levels[index + 1] - levels[index]), own)
        if not free.any():
            return self._left_out(index, in_window, sample)
        velocity = self._sign * output.float()
        part = None if free.all() else free
        velocity = self.calls.step(own, velocity, keep=in_window, free=part, target=output, sign=self._sign)
        if free.all():
            moved = self.advance(velocity, levels[index], own).prev_sample
        else:
            moved = own.clone()
            moved[free] = self.advance(velocity[free][None], levels[index], own[free][None]).prev_sample[0]
            if in_window:  # the trajectory keeps the latents as a whole
                self._latents[-1] = moved
                if len(self._latents) == 2:
                    self._latents[0] = own
        self._own = moved
        # A copy: the pipeline may change in place what it gets, and the trajectory must stay.
        stepped = moved.to(sample.dtype, copy=True)
        self._follow_on()
        return stepped

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

    def _left_out(self, index: int, in_window: bool, sample: torch.Tensor) -> torch.Tensor:
        """A step that the pipeline does not take; the next one begins at the same latents."""
        if in_window:
            raise RuntimeError(
                f"{self.pipeline} leaves all latents as they are in step {index} with latents in {sample.dtype}, so"
                " there is no log-prob: begin sde_window_range behind it"
            )
        self.calls.step(sample, sample, keep=False)
        self._sigmas.append(self.inner.timesteps[index].detach().cpu())
        self.inner._step_index = index + 1
        self._follow_on()
        return sample


def _closure_levels(own_update: Callable[..., torch.Tensor]) -> Sequence[float]:
    """All noise levels, of the one scheduler that an update rests on; none where it holds none, or several."""
    values = (cell.cell_contents for cell in getattr(own_update, "__closure__", None) or ())
    found = [levels for levels in (getattr(value, "sigmas", None) for value in values) if levels is not None]
    return [float(level) for level in found[0]] if len(found) == 1 else ()
