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
"""What rollout and training of BAGEL-7B-MoT must agree on.

Noise schedule, guidance, log-prob convention and SDE window stand here once; both adapters import them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

# Rate of the schedule's time shift; BagelPipeline uses it whatever the checkpoint's configuration says.
SCHEDULE_SHIFT = 3.0

# Guidance of the recipe. The pipeline's own defaults differ, so the rollout adapter always passes these on; training
# reads overrides from ``model_config.pipeline`` and rollout from ``extra_args``, under the same names.
CFG_DEFAULTS: dict[str, Any] = {
    "cfg_text_scale": 4.0,
    "cfg_img_scale": 1.0,
    "cfg_interval": (0.0, 1.0),
    "cfg_renorm_type": "global",
    "cfg_renorm_min": 0.0,
}

RENORMS = ("text_channel", "global", "channel")

# Room for a prompt where a request does not say ``max_sequence_length``, in tokens.
MAX_PROMPT_LENGTH = 256

# Log-probs leave the Gaussian's normaliser out, on both sides.
INCLUDE_LOGPROB_NORMALIZER = False


def shift_sigmas(t: torch.Tensor, shift: float = SCHEDULE_SHIFT) -> torch.Tensor:
    """Time shift ``s * t / (1 + (s - 1) * t)`` of noise levels in [0, 1]; shape and dtype stay."""
    return shift * t / (1 + (shift - 1) * t)


def bagel_sigmas(num_inference_steps: int) -> list[float]:
    """Noise levels at which the model is evaluated, from 1 downwards; the terminal 0 is left out.

    ``n`` requested steps are ``n`` points of the schedule and ``n - 1`` evaluations.

    The values are computed in float32 on the CPU, so that both sides have the same bits whatever their devices.

    Raises:
        ValueError: no step is requested.
    """
    if num_inference_steps < 1:
        raise ValueError(f"num_inference_steps must be at least 1, got {num_inference_steps}")
    points = max(num_inference_steps, 2)  # the engine warms up with one step
    return shift_sigmas(torch.linspace(1, 0, points, dtype=torch.float32))[:-1].tolist()


def setup_bagel_sigmas(
    scheduler: FlowMatchSDEDiscreteScheduler, num_inference_steps: int, device: str | torch.device | None = None
) -> list[float]:
    """Put the schedule into ``scheduler``; its timesteps become the noise levels themselves, not 1000 times them.

    Returns:
        The noise levels, as :func:`bagel_sigmas` gives them.
    """
    sigmas = bagel_sigmas(num_inference_steps)
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=sigmas, device=device)
    # Set afterwards: some diffusers releases ignore ``timesteps`` when ``sigmas`` are given.
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)
    return sigmas


def resolve_guidance(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in ``CFG_DEFAULTS`` and bring the values to one type, whether they come from JSON, Hydra or Python.

    Args:
        overrides: values by name; other names and None are passed over.

    Raises:
        ValueError: the interval is no pair, or the renorm is unknown.
    """
    values = {name: overrides.get(name) for name in CFG_DEFAULTS}
    values = {name: CFG_DEFAULTS[name] if value is None else value for name, value in values.items()}
    interval = values["cfg_interval"]
    if isinstance(interval, str) or not isinstance(interval, Sequence) or len(interval) != 2:
        raise ValueError(f"cfg_interval must be a pair (low, high), got {interval!r}")
    values["cfg_interval"] = (float(interval[0]), float(interval[1]))
    if values["cfg_renorm_type"] not in RENORMS:
        raise ValueError(f"cfg_renorm_type must be one of {RENORMS}, got {values['cfg_renorm_type']!r}")
    for name, default in CFG_DEFAULTS.items():
        if isinstance(default, float):
            values[name] = float(values[name])
    return values


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
