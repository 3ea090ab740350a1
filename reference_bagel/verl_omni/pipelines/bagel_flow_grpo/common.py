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

from typing import Any

import torch

from verl_omni.pipelines.flow_grpo_runtime.guidance import PackedGuidance, settings_of
from verl_omni.pipelines.flow_grpo_runtime.levels import schedule, setup_of

# Rate of the schedule's time shift; BagelPipeline uses it whatever the checkpoint's configuration says.
SCHEDULE_SHIFT = 3.0

# Guidance of the recipe, on both sides. The pipeline's own defaults differ, so the rollout adapter always passes these
# on. Of a launch script only names that VeRL-Omni's configuration of a pipeline has reach them, as ``true_cfg_scale``.
CFG_DEFAULTS: dict[str, Any] = {
    "cfg_text_scale": 4.0,
    "cfg_img_scale": 1.0,
    "cfg_interval": (0.0, 1.0),
    "cfg_renorm_type": "global",
    "cfg_renorm_min": 0.0,
}

RENORMS = ("text_channel", "global", "channel")

# How the branches of guidance are combined.
GUIDANCE = PackedGuidance(
    text_scale="cfg_text_scale",
    image_scale="cfg_img_scale",
    interval="cfg_interval",
    renorm_type="cfg_renorm_type",
    renorm_min="cfg_renorm_min",
    renorms=("text_channel", "global", "channel"),
    epsilon=1e-08,
)

# Room for a prompt where a request does not say ``max_sequence_length``, in tokens.
MAX_PROMPT_LENGTH = 256


def shift_sigmas(t: torch.Tensor, shift: float = SCHEDULE_SHIFT) -> torch.Tensor:
    """Time shift ``s * t / (1 + (s - 1) * t)`` of noise levels in [0, 1]; shape and dtype stay."""
    return shift * t / (1 + (shift - 1) * t)


@schedule
def bagel_sigmas(num_inference_steps: int) -> list[float]:
    """Noise levels at which the model is evaluated, from 1 downwards; the terminal 0 is left out.

    ``n`` requested steps are ``n`` points of the schedule and ``n - 1`` evaluations.
    """
    points = max(num_inference_steps, 2)  # the engine warms up with one step
    return shift_sigmas(torch.linspace(1, 0, points, dtype=torch.float32))[:-1].tolist()


setup_sigmas = setup_of(bagel_sigmas)
resolve_guidance = settings_of(CFG_DEFAULTS, choices={"cfg_renorm_type": RENORMS})
