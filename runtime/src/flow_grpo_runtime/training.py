"""The training adapter of a pipeline whose denoiser calls were recorded."""

from __future__ import annotations

from typing import Any

import torch
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .records import carry_levels
from .replay import DenoiserCalls, read_calls
from .stepped_training import LogProbs, SteppedTraining


class RecordedTraining(SteppedTraining):
    """Recomputes the rollout's log-probs with gradients.

    The calls of the denoiser are those that the rollout recorded, in the batch's column ``denoiser_calls``; prompt
    embeddings are not used.
    """

    @classmethod
    def adopt(cls, module: torch.nn.Module) -> None:
        """Let the module take recorded calls, where it does not from the start."""

    @classmethod
    def set_timesteps(
        cls, scheduler: FlowMatchSDEDiscreteScheduler, model_config: Any, device: str | torch.device
    ) -> None:
        """Leave the levels unshifted: those of each sample come with its record."""
        scheduler.set_shift(1.0)

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
        """Arguments of the module's ``forward``.

        Args:
            module: the training module.
            model_config: its configuration.
            latents: ``(B, T + 1, …)`` trajectory.
            timesteps: ``(B, T)`` noise levels.
            prompt_embeds, prompt_embeds_mask, negative_prompt_embeds, negative_prompt_embeds_mask: not used.
            micro_batch: holds the recorded calls.
            step: index into the trajectory.

        Returns:
            ``{"calls": …}`` with the calls of all branches, and None.

        Raises:
            KeyError: the micro-batch has no recorded calls.
            ValueError: they are not those of these trajectories.
        """
        cls.adopt(module)
        return {"calls": DenoiserCalls(cls.common.CALLS, read_calls(micro_batch), latents[:, step], step)}, None

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
        """Replay the tapes of the samples, each at its own noise levels, and score the rollout's next samples.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; log_prob is ``(B,)`` float32.
        """
        calls: DenoiserCalls = model_inputs["calls"]
        velocity, free = calls.velocity(module(calls=calls)[0].float()), calls.free
        levels = calls.levels
        if all(torch.equal(one, levels[0]) for one in levels):
            carry_levels(scheduler, levels[0], velocity.device)
            return cls._log_probs(scheduler, model_config, scheduler_inputs, step, velocity, free)
        results = []
        for sample, own in enumerate(levels):
            carry_levels(scheduler, own, velocity.device)
            one = slice(sample, sample + 1)
            parts = {name: scheduler_inputs[name][one] for name in ("all_latents", "all_timesteps")}
            part = None if free is None else free[one]
            results.append(cls._log_probs(scheduler, model_config, parts, step, velocity[one], part))
        log_prob, mean, deviation, root = (torch.cat(columns) for columns in zip(*results, strict=True))
        return log_prob, mean, deviation, root
