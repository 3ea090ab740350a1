"""The batch of every step as the trainer computes advantages from it: scores by prompt, and each sample's window."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.inside.observers import say


def observe(module: Any) -> None:
    """Look at the argument of ``compute_advantage``."""
    original = module.compute_advantage

    def compute_advantage(batch: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = batch.batch
        names = set(tensors.keys())
        timesteps = next((tensors[name] for name in ("timesteps", "all_timesteps") if name in names), None)
        say(
            "batch",
            groups=[str(name) for name in batch.non_tensor_batch["uid"]],
            scores=tensors["sample_level_scores"].float().reshape(len(batch), -1)[:, 0].tolist(),
            windows=None if timesteps is None else timesteps.float().reshape(len(batch), -1).tolist(),
        )
        return original(batch, *args, **kwargs)

    module.compute_advantage = compute_advantage


HOOKS = {"verl_omni.trainer.diffusion.ray_diffusion_trainer": observe}
