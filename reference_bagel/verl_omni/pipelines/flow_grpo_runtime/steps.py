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
"""A scheduler of the rollout: it steps with noise inside a window, and records what training needs of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .model import INCLUDE_LOGPROB_NORMALIZER

# How far a size of step or a noise level of the pipeline may lie from training's.
NEAR = 1e-5
# Makes the seed of a trajectory's noise from that of its request, which has drawn the initial latents.
NOISE = 0x5DEECE66D

Trajectory = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


class StepOutput(NamedTuple):
    """What a step returns: the next latents and the log-prob ``(1,)`` of the step, None where it has no noise."""

    prev_sample: torch.Tensor
    log_prob: torch.Tensor | None


class RecordingScheduler:
    """Steps along training's schedule, records within the window, and checks the pipeline's noise levels.

    Inside the window a step is stochastic and recorded, outside it is the plain Euler step. Latents, noise levels and
    log-probs are recorded together, so they cannot be out of step, and none of the pipeline's own trajectory is used.

    Args:
        common: what training shares; its ``setup_sigmas`` puts the schedule into a scheduler.
        pipeline: name of the pipeline's class, for messages.
        highest: the pipeline reports higher noise levels as this one.
    """

    def __init__(self, common: Any, pipeline: str, *, highest: float = 1.0) -> None:
        self.common = common
        self.pipeline = pipeline
        self.highest = highest
        self.inner = FlowMatchSDEDiscreteScheduler()
        self._window: tuple[int, int] | None = None
        self._may_be_empty = False
        self._options: dict[str, Any] = {}
        self._generator: torch.Generator | None = None
        self._seed: int | None = None
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
        seed: int | None = None,
        plain: bool = False,
    ) -> None:
        """Start a trajectory.

        Args:
            num_inference_steps: what the request asks for; the schedule follows from it.
            window: steps ``[begin, end)`` to sample and record; None for all.
            noise_level: of the steps in the window; at 0, as in validation, nothing is recorded.
            sde_type: kind of the stochastic step.
            record_log_probs: whether log-probs are asked for.
            generator: draws the noise of steps; without one, what the pipeline gives a step, or the seed.
            seed: of the request, from which the noise follows, on every rank alike; torch's own without one.
            plain: all steps are recorded, without noise.

        Raises:
            ValueError: the window lies outside the schedule.
        """
        count = self._set_levels(num_inference_steps)
        begin, end = (window or (0, count)) if noise_level > 0.0 or plain else (0, 0)
        if noise_level > 0.0 and not 0 <= begin < end <= count:
            raise ValueError(f"SDE window [{begin}, {end}) does not lie in the {count} steps of {num_inference_steps=}")
        self._window = (begin, end)
        self._may_be_empty = num_inference_steps == 1  # the engine's warm-up, which some releases run without a step
        self._options = {"noise_level": noise_level, "sde_type": sde_type, "return_logprobs": record_log_probs}
        self._generator, self._seed = generator, seed
        self._sigmas, self._latents, self._log_probs = [], [], []

    def _set_levels(self, num_inference_steps: int) -> int:
        """Put training's noise levels into the scheduler, and return how many steps they are."""
        return len(self.common.setup_sigmas(self.inner, num_inference_steps))

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
            generator: draws the noise where the trajectory has no generator of its own.

        Raises:
            RuntimeError: the pipeline takes more steps than training knows, or no trajectory was started.
        """
        if self._window is None:
            raise RuntimeError(f"{self.pipeline} takes a step outside of the rollout adapter's forward()")
        index, (begin, end) = len(self._sigmas), self._window
        if index >= len(self.inner.timesteps):
            raise RuntimeError(f"{self.pipeline} takes more than the {index} steps of the training schedule")
        in_window = begin <= index < end
        options = self._options if in_window else {**self._options, "noise_level": 0.0, "return_logprobs": False}
        sample = sample.float()
        prev_sample, log_prob, _, _ = self.inner.step(
            model_output=velocity.float(),
            timestep=self.inner.timesteps[index],
            sample=sample,
            generator=self._generator or generator or self._noise(sample.device),
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
            return_dict=False,
            **options,
        )
        self._sigmas.append(torch.as_tensor(level, dtype=torch.float32).detach())
        if in_window:
            if not self._latents:
                self._latents.append(sample)
            self._latents.append(prev_sample)
            if log_prob is not None:
                self._log_probs.append(log_prob)
        return StepOutput(prev_sample, log_prob)

    def _noise(self, device: torch.device) -> torch.Generator | None:
        """What draws the noise of the trajectory: torch's own random numbers where the request has no seed."""
        if self._generator is None and self._seed is not None:
            self._generator = torch.Generator(device).manual_seed(self._seed ^ NOISE)
        return self._generator

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
