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
"""Rollout side of BAGEL-7B-MoT: ``BagelPipeline`` with stochastic steps and recorded log-probs."""

from __future__ import annotations

from typing import Any

import torch
from vllm_omni.diffusion.data import OmniDiffusionConfig
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from verl_omni.pipelines.flow_grpo_runtime import composed_rollout, results
from verl_omni.pipelines.flow_grpo_runtime.composed_scheduler import ComposedScheduler
from verl_omni.pipelines.flow_grpo_runtime.prompt_form import PromptForm
from verl_omni.pipelines.flow_grpo_runtime.request_batch import Replaced
from verl_omni.pipelines.flow_grpo_runtime.steps import StepOutput
from verl_omni.pipelines.model_base import VllmOmniPipelineBase

from . import common
from .bagel_model import IGNORED_KEYS, WEIGHTS

# What ``BagelPipeline`` makes of a text by itself.
PROMPTS = PromptForm(
    key="prompt",
    negative_key="negative_prompt",
    begin="<|im_start|>",
    end="<|im_end|>",
    user_turn="<|im_start|>user\n",
    end_of_turn="<|im_end|>",
)


class _BagelSchedulerAdapter(ComposedScheduler):
    """Steps where ``BagelPipeline`` calls ``step(model_output, timestep, sample, dt)``."""

    single = True

    def step(
        self,
        model_output: torch.Tensor,
        sigma: torch.Tensor | float,
        sample: torch.Tensor,
        dt: torch.Tensor | float,
        **kwargs: Any,
    ) -> StepOutput:
        """Advance ``sample`` by one step of the schedule; ``dt`` is not used."""
        return self.taken(model_output, sigma, sample)


@VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")
class BagelPipelineWithLogProb(composed_rollout.FoldingRollout, BagelPipeline):
    """``BagelPipeline`` that samples with the SDE scheduler and returns the trajectory of its window."""

    supports_request_batch = True
    rollout_plan = composed_rollout.ComposedPlan(
        common=common,
        pipeline="BagelPipeline",
        prompts=PROMPTS,
        weights=WEIGHTS,
        result=results.enveloped,
        unused=tuple(prefix for prefix, _ in IGNORED_KEYS),
        training=f"{__package__}.diffusers_training_adapter.BagelDiffusion",
        replaced=(
            Replaced(call="bagel.forward", like="x_t"),
            Replaced(call="bagel.forward_cache_update_text", ids="packed_text_ids"),
        ),
    )

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = ""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = self.sde_scheduler = _BagelSchedulerAdapter(common, "BagelPipeline")
        self.scheduler_kwargs = {}
