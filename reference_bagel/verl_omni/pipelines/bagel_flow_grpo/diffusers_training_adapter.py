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
"""Training side of BAGEL-7B-MoT: recomputes the rollout's log-probs with gradients."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from verl_omni.pipelines.flow_grpo_runtime.composed_training import ComposedTraining, encoded_prompts, latent_grid
from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.workers.config import DiffusionModelConfig

from . import common
from .bagel_model import BagelForTraining, timestep_features


@DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")
class BagelDiffusion(ComposedTraining):
    """Builds BagelForTraining, feeds it from the micro-batch, applies the rollout's guidance."""

    common = common
    module_class = BagelForTraining
    trainable = ("moe_gen",)
    peft_below = "0.21"

    @classmethod
    def prepare_model_inputs(
        cls,
        module: torch.nn.Module,
        model_config: DiffusionModelConfig,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        prompt_embeds: torch.Tensor | None,
        prompt_embeds_mask: torch.Tensor | None,
        negative_prompt_embeds: torch.Tensor | None,
        negative_prompt_embeds_mask: torch.Tensor | None,
        micro_batch: TensorDict,
        step: int,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments of ``BagelForTraining.forward`` for the conditional and the unconditional branch."""
        ids, mask = encoded_prompts(micro_batch, latents)
        config = getattr(module, "module", module).config
        grid = latent_grid(config, model_config, latents, config.max_latent_size)
        shared = {
            "hidden_states": latents[:, step],
            "timestep": timestep_features(timesteps[:, step]),
            "latent_pos_ids": grid[..., 0] * config.max_latent_size + grid[..., 1],
        }
        conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}
        return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}
