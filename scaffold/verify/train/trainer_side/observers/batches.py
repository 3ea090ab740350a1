"""The batch of every update, as the trainer has it: scores, windows, distances of latents and prompts of its samples.

v0 and v1 have a trainer of their own, each with its own update; v1's batch was read from the TransferQueue.
"""

from __future__ import annotations

import hashlib
from typing import Any

from scaffold.verify.train.trainer_side.observers import say

UPDATE = "_update_actor"


def observe(module: Any) -> None:
    """Look at the batch of every trainer class of a module that has an update of its own."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__ and UPDATE in vars(value):
            setattr(value, UPDATE, _seen(vars(value)[UPDATE]))


def _seen(original: Any) -> Any:
    def update_actor(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = batch.batch
        groups = [str(name) for name in batch.non_tensor_batch["uid"]]
        timesteps, latents = (_first(tensors, name, f"all_{name}") for name in ("timesteps", "latents"))
        prompts = batch.non_tensor_batch.get("raw_prompt")
        say(
            "batch",
            step=int(self.global_steps),
            groups=groups,
            scores=tensors["sample_level_scores"].float().reshape(len(batch), -1)[:, 0].tolist(),
            windows=None if timesteps is None else timesteps.float().reshape(len(batch), -1).tolist(),
            closest=None if latents is None else closest(latents[:, 0], groups),
            prompts=None if prompts is None else [_short(prompt) for prompt in prompts],
        )
        return original(self, batch, *args, **kwargs)

    return update_actor


def _first(tensors: Any, *names: str) -> Any:
    known = set(tensors.keys())
    return next((tensors[name] for name in names if name in known), None)


def _short(prompt: Any) -> str:
    return hashlib.sha256(str(prompt).encode()).hexdigest()[:16]


def closest(latents: Any, groups: list[str]) -> dict[str, float | None]:
    """Smallest distance of two samples of a group, and of two groups, over the median of all distances.

    Args:
        latents: ``(B, …)`` where the window begins: noise, or what the same steps without noise made of it.
        groups: the prompt of each sample.
    """
    import torch

    flat = latents.detach().double().reshape(len(groups), -1)
    distances = torch.cdist(flat, flat)
    rows, columns = torch.triu_indices(len(groups), len(groups), offset=1)
    apart = distances[rows, columns]
    if not len(apart):
        return {"within": None, "across": None}
    median = float(apart.median()) or 1.0
    same = torch.tensor(
        [groups[row] == groups[column] for row, column in zip(rows.tolist(), columns.tolist(), strict=False)]
    )
    kinds = {"within": apart[same], "across": apart[~same]}
    return {name: float(found.min()) / median if len(found) else None for name, found in kinds.items()}


HOOKS = {
    "verl_omni.trainer.diffusion.ray_diffusion_trainer": observe,
    "verl_omni.trainer.diffusion.v1.trainer_base": observe,
}
