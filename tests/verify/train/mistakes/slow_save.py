"""The save of the second step does not get past its weights: whoever ends the run then ends it in the middle of it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after


@after("verl.utils.checkpoint.fsdp_checkpoint_manager")
def patch(module: Any) -> None:
    """Wait before the optimizer's state, in this module alone."""
    torch = module.torch

    def save(state: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        if "global_step_2" in str(path) and "optim" in str(path):
            time.sleep(3600)
        torch.save(state, path, *args, **kwargs)

    module.torch = SimpleNamespace(**{**vars(torch), "save": save})
