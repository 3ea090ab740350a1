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
"""What every training adapter does: it loads the module, sets the schedule and scores the rollout's steps."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import torch
from verl.utils.device import get_device_name

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .guidance import other_names, setting_names
from .model import INCLUDE_LOGPROB_NORMALIZER, Common

logger = logging.getLogger(__name__)

LogProbs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class SteppedTraining(DiffusionModelBase):
    """Loads the training module, and recomputes the log-probs of the rollout's steps.

    Attributes:
        common: what rollout and training share.
        module_class: of the training module.
        trainable: parts of the names of parameters that are trained without LoRA; none for all of them.
        peft_below: release of peft from which on LoRA does not reach the rollout; None where every release will do.
        lora_refused: why LoRA cannot be trained; None where it can.
        lora_merged: LoRA can be trained all the same where the trainer merges it into the weights that it pushes.
    """

    common: ClassVar[Any]
    module_class: ClassVar[Any]
    trainable: ClassVar[tuple[str, ...]] = ()
    peft_below: ClassVar[str | None] = None
    lora_refused: ClassVar[str | None] = None
    lora_merged: ClassVar[bool] = False

    @classmethod
    def build_module(cls, model_config: Any, torch_dtype: torch.dtype) -> torch.nn.Module:
        """Load the training module.

        Raises:
            NotImplementedError: LoRA is asked for, and cannot reach the rollout.
            RuntimeError: the installed peft is too new for LoRA.
        """
        cls.require_lora(model_config)
        logger.info("Loading %s from %s", cls.module_class.__name__, model_config.local_path)
        module: torch.nn.Module = cls.module_class.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)
        return module

    @classmethod
    def require_lora(cls, model_config: Any) -> None:
        """Check that LoRA, where it is asked for, reaches the rollout.

        Raises:
            NotImplementedError: it does not.
            RuntimeError: the installed peft is too new for it.
        """
        if getattr(model_config, "lora_rank", 0):
            merged = cls.lora_merged and bool(model_config.lora.get("merge"))
            if cls.lora_refused is not None and not merged:
                raise NotImplementedError(cls.lora_refused)
            _require_peft(cls.peft_below)

    @classmethod
    def configure_trainable_params(cls, module: torch.nn.Module, model_config: Any) -> None:
        """Without LoRA, train these parameters in float32 and freeze the rest."""
        for name, parameter in module.named_parameters():
            parameter.requires_grad = not cls.trainable or any(part in name for part in cls.trainable)
            if parameter.requires_grad:
                parameter.data = parameter.data.float()

    @classmethod
    def build_scheduler(cls, model_config: Any) -> Any:
        """A scheduler with the rollout's noise levels, as far as they are known before the first batch."""
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, get_device_name())
        return scheduler

    @classmethod
    def _guidance(cls, model_config: Any) -> dict[str, Any]:
        common: Common = cls.common
        names = setting_names(common.CFG_DEFAULTS, other_names(common))
        return common.resolve_guidance({name: getattr(model_config.pipeline, name, None) for name in names})

    @classmethod
    def _log_probs(
        cls,
        scheduler: FlowMatchSDEDiscreteScheduler,
        model_config: Any,
        recorded: Any,
        step: int,
        velocity: torch.Tensor,
        free: torch.Tensor | None = None,
    ) -> LogProbs:
        """The log-prob of the rollout's own next sample under a velocity.

        Args:
            scheduler: has the rollout's noise levels.
            model_config: says how the steps are noised.
            recorded: ``all_latents (B, T + 1, …)`` and ``all_timesteps (B, T)``.
            step: index into the trajectory.
            velocity: ``(B, …)`` float32, guided.
            free: ``(B, …)``, true where latents take a step; the rest is fixed, and has no log-prob. None for all.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; log_prob is ``(B,)`` float32.
        """
        latents = recorded["all_latents"]
        sample, following = latents[:, step].float(), latents[:, step + 1].float()
        if free is not None:
            sample, following, velocity = (
                tensor[free].view(len(tensor), -1) for tensor in (sample, following, velocity)
            )
        _, log_prob, prev_sample_mean, std_dev_t, sqrt_dt = scheduler.sample_previous_step(
            sample=sample,
            model_output=velocity,
            timestep=recorded["all_timesteps"][:, step],
            prev_sample=following,
            noise_level=model_config.algo.noise_level,
            sde_type=model_config.algo.sde_type,
            return_logprobs=True,
            return_sqrt_dt=True,
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
        )
        if free is not None:
            full_latents = latents[:, step].float().masked_scatter(free, prev_sample_mean)
            prev_sample_mean, std_dev_t = full_latents, std_dev_t.view(-1, *[1] * (full_latents.ndim - 1))
        return log_prob, prev_sample_mean, std_dev_t, sqrt_dt


def _require_peft(below: str | None) -> None:
    if below is None:
        return
    import peft
    from packaging.version import Version

    if Version(peft.__version__) >= Version(below):
        raise RuntimeError(
            f"peft {peft.__version__} finds no LoRA in a sharded module, so that VeRL-Omni would send none to the"
            f" rollout: install 'peft<{below}', or set lora_rank=0"
        )
