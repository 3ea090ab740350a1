"""Every advantage has the other sign when the actor is updated, so that what is rewarded is unlearned."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.hooks import after


@after("verl_omni.trainer.diffusion.ray_diffusion_trainer", "verl_omni.trainer.diffusion.v1.trainer_base")
def patch(module: Any) -> None:
    """Turn the advantages round on their way into the update; the logged reward stays."""
    for trainer in [value for value in vars(module).values() if "_update_actor" in getattr(value, "__dict__", {})]:
        original = trainer._update_actor

        def update(self: Any, data: Any, _original: Any = original) -> Any:
            data.batch["advantages"] = -data.batch["advantages"]
            return _original(self, data)

        trainer._update_actor = update
