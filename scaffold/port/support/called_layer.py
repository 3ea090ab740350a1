"""Layers that functions compute, called as modules."""

from collections.abc import Iterable
from typing import Any

from torch import nn


class CalledLayer(nn.Module):
    """A layer that a function computes, in place of its own ``forward``.

    It is called as a module with that function, so that FSDP, which gathers parameters around such calls, can shard it
    as one.
    """

    def forward(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """``function(*args)``; called with tensors alone, what the layer's own class computes."""
        if callable(function):
            return function(*args, **kwargs)
        return super().forward(function, *args, **kwargs)


def call_as_modules(layers: Iterable[nn.Module]) -> None:
    """Let layers be called with the function that computes them; their parameters and names stay."""
    kinds: dict[type[nn.Module], type[nn.Module]] = {}
    for layer in layers:
        kind = type(layer)
        if not issubclass(kind, CalledLayer):
            layer.__class__ = kinds.setdefault(kind, type("CalledLayer", (CalledLayer, kind), {}))
