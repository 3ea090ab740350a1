"""The training adapter of a pipeline whose denoiser calls were recorded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from verl.utils.device import get_device_name
from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .guidance import setting_names
from .model import Common
from .replay import DenoiserCalls, read_calls

logger = logging.getLogger(__name__)


class RecordedTraining(DiffusionModelBase):
    """Recomputes the rollout's log-probs with gradients.

    The calls of the denoiser are those that the rollout recorded, in the batch's column ``denoiser_calls``; prompt
    embeddings are not used.

    Attributes:
        common: what rollout and training share.
        module_class: of the training module.
        peft_below: release of peft from which on LoRA does not reach the rollout; None where every release will do.
        lora_refused: why LoRA cannot be trained; None where it can.
    """

    common: ClassVar[Any]
    module_class: ClassVar[Any]
    peft_below: ClassVar[str | None] = None
    lora_refused: ClassVar[str | None] = None

    @classmethod
    def build_module(cls, model_config: Any, torch_dtype: torch.dtype) -> torch.nn.Module:
        """Load the training module.

        Raises:
            NotImplementedError: LoRA is asked for, and cannot reach the rollout.
            RuntimeError: the installed peft is too new for LoRA.
        """
        if getattr(model_config, "lora_rank", 0):
            if cls.lora_refused is not None:
                raise NotImplementedError(cls.lora_refused)
            _require_peft(cls.peft_below)
        logger.info("Loading %s from %s", cls.module_class.__name__, model_config.local_path)
        module: torch.nn.Module = cls.module_class.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)
        return module

    @classmethod
    def configure_trainable_params(cls, module: torch.nn.Module, model_config: Any) -> None:
        """Without LoRA, train every parameter in float32."""
        for parameter in module.parameters():
            parameter.requires_grad = True
            parameter.data = parameter.data.float()

    @classmethod
    def build_scheduler(cls, model_config: Any) -> Any:
        """A scheduler with the rollout's noise levels, as far as they are known before the first batch."""
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, get_device_name())
        return scheduler

    @classmethod
    def set_timesteps(
        cls,
        scheduler: FlowMatchSDEDiscreteScheduler,
        model_config: Any,
        device: str | torch.device,
        latent_size: Sequence[int] | None = None,
    ) -> None:
        """Give the scheduler the rollout's noise levels.

        Where they follow the size of the latents and that is not known yet nothing is set;
        ``forward_and_sample_previous_step`` calls again.
        """
        common: Common = cls.common
        if common.LEVELS_NEED_SIZE and latent_size is None:
            return
        common.setup_sigmas(
            scheduler,
            model_config.pipeline.num_inference_steps,
            device=device,
            latent_size=latent_size,
            model_path=getattr(model_config, "local_path", None),
        )

    @classmethod
    def prepare_model_inputs(
        cls,
        module: torch.nn.Module,
        model_config: Any,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        prompt_embeds: torch.Tensor | None,
        prompt_embeds_mask: torch.Tensor | None,
        negative_prompt_embeds: torch.Tensor | None,
        negative_prompt_embeds_mask: torch.Tensor | None,
        micro_batch: Any,
        step: int,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Arguments of the module's ``forward`` for the conditional and the unconditional branch.

        Args:
            module: the training module.
            model_config: its configuration.
            latents: ``(B, T + 1, …)`` trajectory.
            timesteps: ``(B, T)`` noise levels.
            prompt_embeds: not used, as are the next three.
            prompt_embeds_mask: not used.
            negative_prompt_embeds: not used.
            negative_prompt_embeds_mask: not used.
            micro_batch: holds the recorded calls.
            step: index into the trajectory.

        Returns:
            ``{"calls": …}`` for each branch; None in place of the second where the rollout ran none at this step.

        Raises:
            KeyError: the micro-batch has no recorded calls.
            ValueError: they are not those of these trajectories, or the rollout had other guidance.
        """
        recorded, guidance = read_calls(micro_batch), cls._guidance(model_config)
        conditional, unconditional = (
            DenoiserCalls(cls.common.CALLS, recorded, latents[:, step], step, guidance, conditional=branch)
            for branch in (True, False)
        )
        if len(unconditional) not in (0, len(conditional)):
            raise ValueError(
                f"{len(unconditional)} of {len(conditional)} samples ran the unconditional branch at step {step}; all"
                " samples of a micro-batch need one guidance scale"
            )
        return {"calls": conditional}, {"calls": unconditional} if len(unconditional) else None

    @classmethod
    def _guidance(cls, model_config: Any) -> dict[str, Any]:
        common: Common = cls.common
        names = setting_names(common.CFG_DEFAULTS, common.CFG_OTHER_NAMES)
        return common.resolve_guidance({name: getattr(model_config.pipeline, name, None) for name in names})

    @classmethod
    def forward_and_sample_previous_step(
        cls,
        module: torch.nn.Module,
        scheduler: FlowMatchSDEDiscreteScheduler,
        model_config: Any,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None,
        scheduler_inputs: Any,
        step: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Guided velocity, and the log-prob of the rollout's own next sample under it.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; log_prob is ``(B,)`` float32.
        """
        common: Common = cls.common
        latents, timesteps = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        if common.LEVELS_NEED_SIZE:
            cls.set_timesteps(scheduler, model_config, latents.device, latents.shape[-2:])
        conditional = module(**model_inputs)[0].float()
        unconditional = None if negative_model_inputs is None else module(**negative_model_inputs)[0].float()
        schedule = scheduler.sigmas[:-1].tolist()
        guidance = cls._guidance(model_config)
        velocity = common.guide(conditional, unconditional, guidance, sigma=timesteps[:, step], schedule=schedule)
        sample, following = latents[:, step].float(), latents[:, step + 1].float()
        free = model_inputs["calls"].free if "calls" in model_inputs else None
        if free is not None:  # the rest is given: no step of it has a log-prob
            sample, following, velocity = (
                tensor[free].view(len(tensor), -1) for tensor in (sample, following, velocity)
            )
        _, log_prob, prev_sample_mean, std_dev_t, sqrt_dt = scheduler.sample_previous_step(
            sample=sample,
            model_output=velocity,
            timestep=timesteps[:, step],
            prev_sample=following,
            noise_level=model_config.algo.noise_level,
            sde_type=model_config.algo.sde_type,
            return_logprobs=True,
            return_sqrt_dt=True,
            include_logprob_normalizer=common.INCLUDE_LOGPROB_NORMALIZER,
        )
        if free is not None:
            whole = latents[:, step].float().masked_scatter(free, prev_sample_mean)
            prev_sample_mean, std_dev_t = whole, std_dev_t.view(-1, *[1] * (whole.ndim - 1))
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
