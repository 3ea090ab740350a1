"""Every advantage has the other sign, so that what is rewarded is unlearned."""

from __future__ import annotations

from typing import Any


def patch(module: Any) -> None:
    """Turn the advantages round after the trainer has computed them; the logged reward stays."""
    original = module.compute_advantage

    def compute(*args: Any, **kwargs: Any) -> Any:
        data = original(*args, **kwargs)
        data.batch["advantages"] = -data.batch["advantages"]
        return data

    module.compute_advantage = compute


HOOKS = {"verl_omni.trainer.diffusion.ray_diffusion_trainer": patch}
