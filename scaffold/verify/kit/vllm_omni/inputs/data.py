"""What a user asks of one generation."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from omni_scaffold_kit.profile import ACTIVE

OmniPromptType = str | dict[str, Any]


@dataclass
class OmniDiffusionSamplingParams:
    """Sampling settings of one request; sizes in pixels, the settings of one model in ``extra_args``."""

    max_sequence_length: int | None = None
    do_classifier_free_guidance: bool = False
    output_type: str | None = None
    num_outputs_per_prompt: int = 1
    seed: int | None = None
    generator: torch.Generator | list[torch.Generator] | None = None
    latents: torch.Tensor | None = None
    num_frames: int = 1
    height: int | None = None
    width: int | None = None
    timesteps: torch.Tensor | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = ACTIVE.guidance_scale
    guidance_scale_provided: bool = False
    guidance_scale_2: float | None = None
    eta: float = 0.0
    sigmas: list[float] | None = None
    true_cfg_scale: float | None = None
    return_trajectory_latents: bool = False
    return_trajectory_decoded: bool = False
    extra_args: dict[str, Any] = field(default_factory=dict)
    lora_request: Any = None
    lora_scale: float = 1.0

    @property
    def batch_size(self) -> int:
        """Samples that one request makes."""
        return self.num_outputs_per_prompt

    def clone(self) -> OmniDiffusionSamplingParams:
        """Return a deep copy."""
        return copy.deepcopy(self)
