"""Finds an image size and latent shape that the package's adapter and module take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROWS, COLUMNS = 2, 3


@dataclass(frozen=True)
class Geometry:
    """One image.

    Attributes:
        height: pixels.
        width: pixels.
        shape: shape of one latent without batch, ``(tokens, channels)``, ``(channels, rows, columns)`` or
            ``(channels, frames, rows, columns)``.
    """

    height: int
    width: int
    shape: tuple[int, ...]


def candidates(config: Any, module: Any, spec: dict[str, Any]) -> Iterator[Geometry]:
    """Sizes to try, likeliest first: a grid of two by three latent tokens."""
    for pixels, channels in itertools.product(_pixels(config, spec), _channels(config, module)):
        yield Geometry(ROWS * pixels, COLUMNS * pixels, (ROWS * COLUMNS, channels))


def _pixels(config: Any, spec: dict[str, Any]) -> list[int]:
    """Side of the image square that one latent token may stand for."""
    sizes = [getattr(config, "pixels_per_token", None)]
    patches = [value for name, value in numbers(config).items() if "patch" in name and "size" in name]
    factors = [value for name, value in numbers(config).items() if "downsample" in name or "scale_factor" in name]
    sizes += [patch * factor for patch in patches for factor in factors]
    latents = spec.get("latents", {})
    if latents.get("patch") and latents.get("downsample"):
        sizes.append(latents["patch"] * latents["downsample"])
    sizes += [16, 8, 32, 1]
    return list(dict.fromkeys(size for size in sizes if isinstance(size, int) and size > 0))


def _channels(config: Any, module: Any) -> list[int]:
    """Channels that one latent token may have."""
    import torch

    named = [value for name, value in numbers(config).items() if "patch" in name and "dim" in name]
    patches = [value for name, value in numbers(config).items() if "patch" in name and "size" in name]
    channels = [value for name, value in numbers(config).items() if "channel" in name]
    named += [patch**2 * channel for patch in patches for channel in channels]
    # What goes in comes out: the input and the output projection share the latents' channels. They may be parts of
    # children, but of no repeated layer.
    children = [child for child in module.children() if not isinstance(child, torch.nn.ModuleList)]
    inner = [part for child in children for part in child.modules()]
    named += [*_in_and_out(children), *channels, *_in_and_out(inner)]
    return list(dict.fromkeys(value for value in named if value > 0))


def _in_and_out(parts: list[Any]) -> list[int]:
    """Widths that one linear layer takes and one gives."""
    import torch

    linear = [part for part in parts if isinstance(part, torch.nn.Linear)]
    outputs = {layer.out_features for layer in linear}
    return [layer.in_features for layer in linear if layer.in_features in outputs]


def numbers(config: Any) -> dict[str, int]:
    """Integer fields and properties of a configuration."""
    names = [name for name in dir(config) if not name.startswith("_")]
    found = {}
    for name in names:
        try:
            value = getattr(config, name)
        except Exception:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return found
