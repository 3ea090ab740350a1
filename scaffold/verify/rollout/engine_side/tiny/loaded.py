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

    def after(module: Any, args: Any, output: Any) -> None:
        if isinstance(states := getattr(output, "hidden_states", None), tuple):
            output.hidden_states = States(states)

    for module in model.modules():
        if hasattr(module, "config") and hasattr(module, "base_model_prefix"):
            module.register_forward_pre_hook(before, with_kwargs=True)
            module.register_forward_hook(after)


class States(tuple[torch.Tensor, ...]):
    """Hidden states of an encoder; of one that is missing it says which, where a tuple does not."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int) and not -len(self) <= key < len(self):
            raise IndexError(f"hidden state {key} was asked for, there are {len(self)}")
        return super().__getitem__(key)


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
