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

import logging
from typing import Any

import peft
import torch
from packaging.version import Version
from tensordict import TensorDict
from verl.utils.device import get_device_name

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler
from verl_omni.workers.config import DiffusionModelConfig

from .bagel_model import BagelForTraining, BagelTrainingConfig, timestep_features
from .common import CFG_DEFAULTS, INCLUDE_LOGPROB_NORMALIZER, resolve_guidance, setup_bagel_sigmas

logger = logging.getLogger(__name__)


def _renormed(guided: torch.Tensor, conditional: torch.Tensor, dims: tuple[int, ...], minimum: float) -> torch.Tensor:
    """Scale ``guided`` to the norm of ``conditional`` over ``dims``, by a factor clamped to [minimum, 1]."""
    target = torch.linalg.vector_norm(conditional, dim=dims, keepdim=True)
    norm = torch.linalg.vector_norm(guided, dim=dims, keepdim=True)
    return guided * (target / (norm + 1e-08)).clamp(min=minimum, max=1.0)


def guide(
    conditional: torch.Tensor, unconditional: torch.Tensor, sigma: torch.Tensor, guidance: dict[str, Any]
) -> torch.Tensor:
    """Classifier-free guidance as the rollout applies it, for each sample by itself.

    Text guidance is ``u + s * (c - u)``.
    Image guidance follows, with the branch that drops the input image. In text-to-image that branch is the
    conditional one and needs no third forward.

    Args:
        conditional: ``(B, N, C)`` float32 velocity with the prompt.
        unconditional: ``(B, N, C)`` float32 velocity without it.
        sigma: ``(B,)`` noise levels; samples of a micro-batch may stand at different steps.
        guidance: what ``resolve_guidance`` returns.

    Returns:
        ``(B, N, C)`` float32; samples outside the interval keep the conditional velocity.
    """
    guided = unconditional + guidance["cfg_text_scale"] * (conditional - unconditional)
    renorm, minimum = guidance["cfg_renorm_type"], guidance["cfg_renorm_min"]
    if renorm == "text_channel":
        guided = _renormed(guided, conditional, (-1,), minimum)
    if guidance["cfg_img_scale"] > 1.0:
        guided = conditional + guidance["cfg_img_scale"] * (guided - conditional)
    if renorm == "global":
        guided = _renormed(guided, conditional, (1, 2), minimum)
    if renorm == "channel":
        guided = _renormed(guided, conditional, (-1,), minimum)
    low, high = guidance["cfg_interval"]
    sigma = sigma.double()  # the rollout compares Python floats
    active = (sigma > low) & (sigma <= high)
    return torch.where(active.view(-1, 1, 1), guided, conditional)


@DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")
class BagelDiffusion(DiffusionModelBase):
    """Builds BagelForTraining, feeds it from the micro-batch, applies the rollout's guidance."""

    @classmethod
    def build_module(cls, model_config: DiffusionModelConfig, torch_dtype: torch.dtype) -> BagelForTraining:
        if getattr(model_config, "lora_rank", 0) and Version(peft.__version__) >= Version("0.21"):
            raise RuntimeError(
                f"peft {peft.__version__} finds no LoRA in a sharded module, so that VeRL-Omni would send none to the"
                " rollout: install 'peft<0.21', or set lora_rank=0"
            )
        logger.info("Loading BagelForTraining from %s", model_config.local_path)
        module = BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)
        # True is every layer; a number is that many of them, which VeRL-Omni hands on as it stands.
        layers = getattr(model_config, "enable_gradient_checkpointing", True)
        if not isinstance(layers, bool):
            if not isinstance(layers, int) or layers < 0:
                raise ValueError(
                    f"enable_gradient_checkpointing={layers!r} is neither true, false nor a number of layers"
                )
            module.checkpointed_layers = layers
        return module

    @classmethod
    def configure_trainable_params(cls, module: torch.nn.Module, model_config: DiffusionModelConfig) -> None:
        """Without LoRA, train moe_gen in float32 and freeze the rest."""
        for name, parameter in module.named_parameters():
            parameter.requires_grad = "moe_gen" in name
            if parameter.requires_grad:
                parameter.data = parameter.data.float()

    @classmethod
    def build_scheduler(cls, model_config: DiffusionModelConfig) -> FlowMatchSDEDiscreteScheduler:
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, get_device_name())
        return scheduler

    @classmethod
    def set_timesteps(
        cls, scheduler: FlowMatchSDEDiscreteScheduler, model_config: DiffusionModelConfig, device: str
    ) -> None:
        setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)

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
        """Arguments of ``BagelForTraining.forward`` for the conditional and the unconditional branch.

        Args:
            latents: ``(B, T + 1, N, C)`` trajectory.
            timesteps: ``(B, T)`` noise levels.
            micro_batch: holds the prompts that the rollout encoded; the prompt embeddings are not used.
            step: index into the trajectory.
        """
        ids, mask = cls._encoded_prompts(micro_batch, latents.device)
        if ids.shape[0] != latents.shape[0]:
            raise ValueError(f"encoded_prompt_ids holds {ids.shape[0]} prompts for {latents.shape[0]} trajectories")
        config = getattr(module, "module", module).config
        shared = {
            "hidden_states": latents[:, step],
            "timestep": timestep_features(timesteps[:, step]),
            "latent_pos_ids": cls._latent_pos_ids(config, model_config, latents),
        }
        conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}
        return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}

    @staticmethod
    def _latent_pos_ids(
        config: BagelTrainingConfig, model_config: DiffusionModelConfig, latents: torch.Tensor
    ) -> torch.Tensor:
        """Row-major indices ``(B, N)`` of the latent grid into the position table."""
        rows = model_config.pipeline.height // config.pixels_per_token
        columns = model_config.pipeline.width // config.pixels_per_token
        if rows * columns != latents.shape[2] or max(rows, columns) > config.max_latent_size:
            raise ValueError(
                f"pipeline.height={model_config.pipeline.height} and pipeline.width={model_config.pipeline.width} are"
                f" {rows}x{columns} latent tokens; the trajectory has {latents.shape[2]} and the position table"
                f" {config.max_latent_size} a side"
            )
        row = torch.arange(rows, device=latents.device)[:, None] * config.max_latent_size
        grid = row + torch.arange(columns, device=latents.device)
        return grid.flatten().expand(latents.shape[0], -1)

    @staticmethod
    def _encoded_prompts(micro_batch: TensorDict, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The prompts that the rollout encoded, without what stands behind the longest of them.

        Returns:
            Ids ``(B, L)`` int64, padded on the right, and a mask ``(B, L)`` that is true at real tokens, or None where
            all prompts have one length.

        Raises:
            KeyError: the micro-batch has not the columns that the rollout adapter returns.
        """
        ids, mask = micro_batch["encoded_prompt_ids"].to(device), micro_batch["encoded_prompt_mask"].to(device)
        lengths = mask.sum(dim=1).tolist()
        longest = int(max(lengths))
        return ids[:, :longest].long(), None if min(lengths) == longest else mask[:, :longest].bool()

    @classmethod
    def forward_and_sample_previous_step(
        cls,
        module: torch.nn.Module,
        scheduler: FlowMatchSDEDiscreteScheduler,
        model_config: DiffusionModelConfig,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None,
        scheduler_inputs: TensorDict | dict[str, torch.Tensor],
        step: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Guided velocity, and the log-prob of the rollout's own next sample under it.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; log_prob is ``(B,)`` float32.
        """
        latents, timesteps = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        guidance = resolve_guidance({name: getattr(model_config.pipeline, name, None) for name in CFG_DEFAULTS})
        velocity = module(**model_inputs)[0].float()
        if guidance["cfg_text_scale"] > 1.0:
            if negative_model_inputs is None:
                raise ValueError("cfg_text_scale is above 1, which needs negative_model_inputs")
            # Every rank runs the branch at every step: skipping it on some would stall sharded parameters.
            unconditional = module(**negative_model_inputs)[0].float()
            velocity = guide(velocity, unconditional, timesteps[:, step], guidance)
        _, log_prob, prev_sample_mean, std_dev_t, sqrt_dt = scheduler.sample_previous_step(
            sample=latents[:, step].float(),
            model_output=velocity,
            timestep=timesteps[:, step],
            prev_sample=latents[:, step + 1].float(),
            noise_level=model_config.algo.noise_level,
            sde_type=model_config.algo.sde_type,
            return_logprobs=True,
            return_sqrt_dt=True,
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
        )
        return log_prob, prev_sample_mean, std_dev_t, sqrt_dt
