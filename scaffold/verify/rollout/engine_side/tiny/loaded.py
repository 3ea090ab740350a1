"""What is done to components of a tiny checkpoint after they are loaded: what is asked of them is noted, and in half
precision their convolutions are made quick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


def note_states(model: Any, note: Callable[[], None]) -> None:
    """Call ``note`` when hidden states of all layers are asked of an encoder."""

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs.get("output_hidden_states") or getattr(module.config, "output_hidden_states", False):
            note()

    for module in model.modules():
        if hasattr(module, "config") and hasattr(module, "base_model_prefix"):
            module.register_forward_pre_hook(before, with_kwargs=True)


def add_up_in_float32(model: Any) -> None:
    """Make convolutions in half precision add up in float32 and round once, which is faster on most CPUs."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.conv._ConvNd):
            module._conv_forward = partial(_in_float32, module._conv_forward)  # type: ignore[method-assign]


def _in_float32(
    convolve: Callable[..., torch.Tensor], x: torch.Tensor, weight: torch.Tensor, bias: Any
) -> torch.Tensor:
    with torch.autocast(x.device.type, enabled=False):
        found = convolve(x.float(), weight.float(), None if bias is None else bias.float())
    return found.to(weight.dtype)
