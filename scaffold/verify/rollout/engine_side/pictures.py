"""Pictures of an autoencoder of the released size, whose decoding takes most of a request of a tiny denoiser."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch


def draw_once(autoencoder: Any) -> None:
    """Let ``decode`` of an autoencoder draw one picture of each shape, and give a copy of it from then on.

    Training has no autoencoder, so nothing that it recomputes can depend on what a picture shows.

    Args:
        autoencoder: a module; its method takes latents of any shape and returns a picture, in whatever holds it.
    """
    original = autoencoder.decode
    drawn: dict[object, Any] = {}

    @functools.wraps(original)
    def decode(latents: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = (latents.shape, latents.dtype, repr((args, kwargs)))
        if asked not in drawn:
            with torch.no_grad():  # what has a gradient cannot be copied
                drawn[asked] = original(latents, *args, **kwargs)
        return copy.deepcopy(drawn[asked])

    autoencoder.decode = decode
