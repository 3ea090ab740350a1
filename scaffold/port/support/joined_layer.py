"""Layers that upstream has fused or with a pair as their result, for code that reaches them by their upstream name."""

from typing import Any

import torch


class JoinedLayer:
    """Calls the parts of one layer, as upstream's returns it: joined, with the bias that it leaves out if it does."""

    def __init__(self, parts: tuple[Any, ...], pair: bool, **reads: Any) -> None:
        self.parts, self.pair = parts, pair
        self.__dict__.update(reads)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs ``(…, N)`` of the parts, one behind the other."""
        made = [part(*args, **kwargs) for part in self.parts]
        joined = made[0] if len(made) == 1 else torch.cat(made, dim=-1)
        return (joined, None) if self.pair else joined

    def __getattr__(self, name: str) -> Any:
        """What the one layer has; several have none of it in common."""
        if len(self.parts) == 1:
            return getattr(self.parts[0], name)
        raise NotImplementedError(f"{name} of a fused layer, whose parts are layers of their own here")


def paired_layer(layer: Any) -> Any:
    """A layer that is handed on and gives a pair upstream; None where there is none."""
    return None if layer is None else JoinedLayer((layer,), True)
