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
"""Noise levels in the trainer's scheduler, and the window of steps that get noise."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch


def put_levels(scheduler: Any, levels: Sequence[float], device: str | torch.device | None = None) -> list[float]:
    """Put a schedule into ``scheduler``; its timesteps become the noise levels themselves, not 1000 times them.

    Args:
        scheduler: a ``FlowMatchSDEDiscreteScheduler``.
        levels: noise levels at which the model is evaluated, falling, without the terminal 0.
        device: of the scheduler's tensors.

    Returns:
        The levels.
    """
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=list(levels), device=device)
    # Set afterwards: some diffusers releases ignore ``timesteps`` when ``sigmas`` are given.
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)
    return list(levels)


def pick_sde_window(
    size: int | None,
    window_range: Sequence[int] | None,
    training_step: int | None,
    *,
    seed: int = 0,
    every: int | None = None,
) -> tuple[int, int] | None:
    """Steps ``[begin, end)`` that get noise and a log-prob; None means all of them.

    The draw depends on the training step alone: every request, rank and replica of a step has the same window, and
    over many steps each place in the range comes up about equally often.

    Args:
        size: number of steps in the window; None or 0 for no window.
        window_range: ``[low, high)`` in which the window lies; None puts it at the start.
        training_step: the trainer's ``global_steps``, which it sends with every training request.
        seed: of the draw.
        every: the window slides in place of being drawn, by its size each time so many training steps are done, until
            it stands at the end of the range (progressive MixGRPO).

    Raises:
        ValueError: the range leaves a choice and the request does not say its step.
    """
    if not size:
        return None
    if window_range is None:
        return 0, int(size)
    low, latest = int(window_range[0]), int(window_range[1]) - int(size)
    if latest <= low:
        return low, low + int(size)
    if training_step is None:
        raise ValueError(
            "a request with noise has no global_steps, from which its SDE window is drawn; training requests have it,"
            " and validation is to run with val_kwargs.algo.noise_level=0.0"
        )
    if every is not None:
        begin = min(low + max(0, int(training_step)) // max(1, int(every)) * int(size), latest)
        return begin, begin + int(size)
    # Of a seeded generator, random() alone is the same in every version of Python.
    begin = low + int(random.Random(int(seed) + int(training_step)).random() * (latest - low + 1))
    return begin, begin + int(size)


Levels = Callable[[int], list[float]]


def schedule(levels: Levels) -> Levels:
    """Refuse to make a schedule of no step.

    Levels are computed in float32 on the CPU, so that both sides have the same bits whatever their devices.

    Args:
        levels: makes the noise levels of a number of steps, from 1 downwards, the terminal 0 left out.
    """

    @functools.wraps(levels)
    def checked(num_inference_steps: int) -> list[float]:
        if num_inference_steps < 1:
            raise ValueError(f"num_inference_steps must be at least 1, got {num_inference_steps}")
        return levels(num_inference_steps)

    return checked


def setup_of(levels: Levels) -> Callable[..., list[float]]:
    """What puts a schedule into a scheduler, and returns it; see :func:`put_levels`."""

    def setup_sigmas(scheduler: Any, num_inference_steps: int, device: str | torch.device | None = None) -> list[float]:
        return put_levels(scheduler, levels(num_inference_steps), device)

    return setup_sigmas
