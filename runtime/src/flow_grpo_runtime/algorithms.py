"""Mixins of rollout adapters for algorithms whose rollout differs from FlowGRPO's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .stepped import SteppedRollout as _Adapter
else:
    _Adapter = object

_SEEDS = 2**31


class SharedStart(_Adapter):
    """DanceGRPO: in a training step all images of a prompt start from one noise; that of the steps differs."""

    def _steps(self, params: Any, extra_args: dict[str, Any], prompt: Any) -> dict[str, Any]:
        asked = super()._steps(params, extra_args, prompt)
        if asked["noise_level"] > 0.0:
            # The request's own seed now draws the noise of the steps, and no longer the initial noise.
            own = int(torch.randint(_SEEDS, (1,))) if params.seed is None else int(params.seed)
            asked["generator"] = torch.Generator().manual_seed(own)
            params.seed, params.generator = seed_of(prompt, extra_args.get("global_steps")), None
        return asked


class CleanLatents(_Adapter):
    """DiffusionNFT and DPO: samples without noise, and returns the clean latents and the calls of every step."""

    def _steps(self, params: Any, extra_args: dict[str, Any], prompt: Any) -> dict[str, Any]:
        asked = super()._steps(params, extra_args, prompt)
        if asked["noise_level"] > 0.0:
            raise ValueError("this algorithm samples without noise: set actor_rollout_ref.rollout.algo.noise_level=0.0")
        # Validation asks for no log-probs: nothing of it is recorded.
        asked["plain"], asked["record_log_probs"] = asked["record_log_probs"], False
        return asked

    def _result(self, output: Any, trajectory: Any, columns: dict[str, Any]) -> Any:
        latents, levels, _ = trajectory
        if latents is not None:
            # VeRL-Omni's engine requires prompt embeddings; the recorded calls contain the real ones.
            empty = torch.zeros(1, 1, 1)
            columns = {
                **columns,
                "latents_clean": latents[:, -1],
                "train_timesteps": levels * 1000.0,
                "prompt_embeds": empty,
                "prompt_embeds_mask": torch.ones(1, 1, dtype=torch.long),
            }
        return super()._result(output, (None, None, None), columns)


def seed_of(prompt: Any, training_step: int | None) -> int:
    """A seed that follows from a prompt and the training step alone.

    Args:
        prompt: of a request: its token ids, or its text where it has none.
        training_step: the trainer's ``global_steps``.
    """
    told: Any = prompt
    if isinstance(prompt, Mapping):
        ids = next((prompt[name] for name in ("prompt_token_ids", "prompt_ids") if prompt.get(name) is not None), None)
        told = prompt.get("prompt") if ids is None else torch.as_tensor(ids).flatten().tolist()
    digest = hashlib.sha256(repr((told, training_step)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEEDS
