"""All layers of a model in one list."""

from torch import nn


def all_layers(count: int, make) -> tuple[int, int, nn.ModuleList]:  # type: ignore[no-untyped-def]
    """Return the first index, the one behind the last, and the layers; each is told its place at the end of a name."""
    return 0, count, nn.ModuleList([make(prefix=f"layers.{index}") for index in range(count)])
