"""The rollout adapter does not map the actor's LoRA onto the engine; the engine's own manager gets it as it is."""

from __future__ import annotations

import os
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

HOOK = "map_lora_update_to_engine"


@after(f"{os.environ.get('OMNI_SCAFFOLD_TRAIN_PACKAGE', '')}.*")
def patch(module: Any) -> None:
    """Take the adapter's own hook away."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and HOOK in vars(value):
            delattr(value, HOOK)
