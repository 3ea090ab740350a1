"""The training adapter of a model that is computed anew, from the prompt's ids that the rollout encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .encoded import IDS, MASK
from .stepped_training import LogProbs, SteppedTraining


class ComposedTraining(SteppedTraining):
    """Recomputes the rollout's log-probs with gradients; ``GUIDANCE`` of ``common`` says how branches are combined."""

    @classmethod
    def set_timesteps(
        cls, scheduler: FlowMatchSDEDiscreteScheduler, model_config: Any, device: str | torch.device
    ) -> None:
        """Give the scheduler the rollout's noise levels."""
        cls.common.setup_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)

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
        sigma = scheduler_inputs["all_timesteps"][:, step]
        velocity = cls.guided_velocity(module, model_config, model_inputs, negative_model_inputs, sigma)
        return cls._log_probs(scheduler, model_config, scheduler_inputs, step, velocity)

    @classmethod
    def guided_velocity(
        cls,
        module: torch.nn.Module,
        model_config: Any,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None,
        sigma: torch.Tensor,
    ) -> torch.Tensor:
        """Velocity ``(B, N, C)`` float32 with guidance, at noise levels ``(B,)``.

        Raises:
            ValueError: guidance asks for the second branch, whose inputs are missing.
        """
        guidance, rule = cls._guidance(model_config), cls.common.GUIDANCE
        velocity: torch.Tensor = module(**model_inputs)[0].float()
        if guidance[rule.text_scale] > 1.0:
            if negative_model_inputs is None:
                raise ValueError(f"{rule.text_scale} is above 1, which needs negative_model_inputs")
            # Every rank runs the branch at every step: skipping it on some would stall sharded parameters.
            unconditional = module(**negative_model_inputs)[0].float()
            image_free = None
            if model_inputs.get("reference") is not None and guidance[rule.image_scale] > 1.0:
                image_free = module(**{**model_inputs, "reference": None})[0].float()
            velocity = rule.combine(velocity, unconditional, sigma, guidance, image_free)
        return velocity


def encoded_prompts(
    micro_batch: Mapping[str, torch.Tensor], latents: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The prompts that the rollout encoded, without what stands behind the longest of them.

    Args:
        micro_batch: has the columns that :meth:`PromptRecorder.finish` made.
        latents: ``(B, …)`` trajectories of these prompts.

    Returns:
        Ids ``(B, L)`` int64, padded on the right, and a mask ``(B, L)`` that is true at real tokens, or None where
        all prompts have one length.

    Raises:
        KeyError: the micro-batch has not these columns.
        ValueError: there is not one prompt for each trajectory.
    """
    ids, mask = micro_batch[IDS].to(latents.device), micro_batch[MASK].to(latents.device)
    if len(ids) != len(latents):
        raise ValueError(f"{IDS} holds {len(ids)} prompts for {len(latents)} trajectories")
    lengths = mask.sum(dim=1).tolist()
    longest = int(max(lengths))
    return ids[:, :longest].long(), None if min(lengths) == longest else mask[:, :longest].bool()


def latent_grid(config: Any, model_config: Any, latents: torch.Tensor, most: int | None = None) -> torch.Tensor:
    """Row and column ``(B, N, 2)`` of each latent token, row by row.

    Args:
        config: sizes of the model.
        model_config: says the size of the images.
        latents: ``(B, T + 1, N, C)`` trajectory.
        most: rows and columns of the position table; None where there is none.

    Raises:
        ValueError: the latents are not of images of that size, or have no place in the table.
    """
    height, width = model_config.pipeline.height, model_config.pipeline.width
    rows, columns = height // config.pixels_per_token, width // config.pixels_per_token
    if rows * columns != latents.shape[2] or (most is not None and max(rows, columns) > most):
        table = "" if most is None else f" and the position table {most} a side"
        raise ValueError(
            f"pipeline.height={height} and pipeline.width={width} are {rows}x{columns} latent tokens; the trajectory"
            f" has {latents.shape[2]}{table}"
        )
    grid = torch.cartesian_prod(*(torch.arange(count, device=latents.device) for count in (rows, columns)))
    return grid.expand(latents.shape[0], -1, -1)


def negative_ids(config: Any, latents: torch.Tensor) -> torch.Tensor:
    """The ids ``(B, L)`` that stand in place of the prompt in the unconditional branch.

    Raises:
        ValueError: the configuration has none.
    """
    if not config.negative_token_ids:
        raise ValueError("the configuration has no negative_token_ids; read it from the checkpoint")
    return torch.tensor(config.negative_token_ids, device=latents.device).expand(len(latents), -1)
