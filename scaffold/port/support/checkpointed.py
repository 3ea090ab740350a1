"""Layers whose activations are computed again in the backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


class CheckpointedLayers:
    """Calls layers through ``_checkpointed_call``, in the denoiser itself or in a module inside of it.

    What the call means is that of the training module's base class; the training module sets both attributes in
    every module inside of it, too.
    """

    gradient_checkpointing: bool = False
    _gradient_checkpointing_func: Callable[..., Any] | None = None

    def _checkpointed_call(self, fn: Callable[..., Any], *args: Any, **ckpt_kwargs: Any) -> Any:
        """``fn(*args)``; where checkpointing is on and gradients are, only the arguments are kept for backward."""
        if not self.gradient_checkpointing or not torch.is_grad_enabled():
            return fn(*args)
        ckpt_kwargs.setdefault("use_reentrant", False)
        if self._gradient_checkpointing_func is not None:
            return self._gradient_checkpointing_func(fn, *args, **ckpt_kwargs)
        return checkpoint(fn, *args, **ckpt_kwargs)
