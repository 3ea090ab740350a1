"""The training adapter of a pipeline whose denoiser calls were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .model import Common, needs_size
from .replay import DenoiserCalls, read_calls
from .stepped_training import LogProbs, SteppedTraining


class RecordedTraining(SteppedTraining):
    """Recomputes the rollout's log-probs with gradients.

    The calls of the denoiser are those that the rollout recorded, in the batch's column ``denoiser_calls``; prompt
    embeddings are not used.
    """

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
        if needs_size(common) and latent_size is None:
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
    def forward_and_sample_previous_step(
        cls,
        module: torch.nn.Module,
        scheduler: FlowMatchSDEDiscreteScheduler,
        model_config: Any,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None,
        scheduler_inputs: Any,
        step: int,
    ) -> LogProbs:
        """Guided velocity, and the log-prob of the rollout's own next sample under it.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; log_prob is ``(B,)`` float32.
        """
        common: Common = cls.common
        latents, timesteps = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        if needs_size(common):
            cls.set_timesteps(scheduler, model_config, latents.device, latents.shape[-2:])
        conditional = module(**model_inputs)[0].float()
        unconditional = None if negative_model_inputs is None else module(**negative_model_inputs)[0].float()
        schedule = scheduler.sigmas[:-1].tolist()
        guidance = cls._guidance(model_config)
        velocity = common.guide(conditional, unconditional, guidance, sigma=timesteps[:, step], schedule=schedule)
        free = model_inputs["calls"].free if "calls" in model_inputs else None
        return cls._log_probs(scheduler, model_config, scheduler_inputs, step, velocity, free)
