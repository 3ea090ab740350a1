"""Noise levels in the trainer's scheduler, and the window of steps that get noise."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, overload

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
    size: int | None, window_range: Sequence[int] | None, training_step: int | None
) -> tuple[int, int] | None:
    """Steps ``[begin, end)`` that get noise and a log-prob; None means all of them.

    The draw depends on the training step alone: every request, rank and replica of a step has the same window, and
    over many steps each place in the range comes up about equally often.

    Args:
        size: number of steps in the window; None or 0 for no window.
        window_range: ``[low, high)`` in which the window lies; None puts it at the start.
        training_step: the trainer's ``global_steps``, which it sends with every training request.

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
    # Of a seeded generator, random() alone is the same in every version of Python.
    begin = low + int(random.Random(int(training_step)).random() * (latest - low + 1))
    return begin, begin + int(size)


Levels = Callable[..., list[float]]


@overload
def schedule(levels: Levels) -> Levels: ...


@overload
def schedule(*, of_size: bool = False, of_checkpoint: bool = False) -> Callable[[Levels], Levels]: ...


def schedule(levels: Levels | None = None, *, of_size: bool = False, of_checkpoint: bool = False) -> Any:
    """Refuse to make a schedule of no step, or without what it follows.

    Levels are computed in float32 on the CPU, so that both sides have the same bits whatever their devices.

    Args:
        levels: makes the noise levels of a number of steps, from 1 downwards, the terminal 0 left out; of the last two
            sizes of the latents, where the shift follows them; and of the checkpoint's folder, where settings stand.
        of_size: the sizes are needed.
        of_checkpoint: the folder is needed.

    Returns:
        The same, which raises ValueError for less than one step and for what is missing; without ``levels`` a
        decorator.
    """
    if levels is None:
        return functools.partial(schedule, of_size=of_size, of_checkpoint=of_checkpoint)

    @functools.wraps(levels)
    def checked(
        num_inference_steps: int, latent_size: Sequence[int] | None = None, model_path: str | None = None
    ) -> list[float]:
        if num_inference_steps < 1:
            raise ValueError(f"num_inference_steps must be at least 1, got {num_inference_steps}")
        if of_size and latent_size is None:
            raise ValueError("the schedule follows the size of the latents: latent_size is needed")
        if of_checkpoint and model_path is None:
            raise ValueError("the schedule is read from the checkpoint: model_path is needed")
        given = {"latent_size": latent_size, "model_path": model_path}
        return levels(num_inference_steps, **{name: value for name, value in given.items() if value is not None})

    return checked


def setup_of(levels: Callable[..., list[float]]) -> Callable[..., list[float]]:
    """What puts a schedule into a scheduler, and returns it; see :func:`put_levels`."""

    def setup_sigmas(
        scheduler: Any, num_inference_steps: int, device: str | torch.device | None = None, **settings: Any
    ) -> list[float]:
        return put_levels(scheduler, levels(num_inference_steps, **settings), device)

    return setup_sigmas
