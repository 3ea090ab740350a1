"""What the engine takes of a rollout, in the form that a release of verl-omni has for it."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

logger = logging.getLogger(__name__)

PIXELS = "image"  # VeRL-Omni's word for an output that is decoded


def enveloped(output: Any, *, columns: Mapping[str, Any], trajectory: Mapping[str, Any], **media: Any) -> Any:
    """The result of a rollout in the envelope of verl-omni."""
    from verl_omni.pipelines.diffusion_rollout_output import rollout_output

    return rollout_output(rl=columns, to_cpu=False, **trajectory, **media)


def enveloped_image(output: Any, *, media: Any, **rest: Any) -> Any:
    """:func:`enveloped` for a pipeline without a post-processor, which would take the image out of its batch of one.

    Args:
        output: what the pipeline returned.
        media: ``[1, C, H, W]``, of which the trainer takes ``[C, H, W]``; all else stays as it is.
        rest: as for :func:`enveloped`.
    """
    batched = isinstance(media, torch.Tensor) and media.ndim == 4 and len(media) == 1
    return enveloped(output, media=media[0] if batched else media, **rest)


def in_custom_output(
    output: Any,
    *,
    media: Any,
    media_key: str,
    metadata: Mapping[str, Any] | None,
    trajectory: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> Any:
    """The result of a rollout for releases of verl-omni that have no envelope."""
    recorded = {name.replace("trajectory_", "all_"): value for name, value in trajectory.items()}
    custom = {**(output.custom_output or {}), **(metadata or {}), **recorded, **columns}
    return replace(output, output=media, custom_output=custom)


def failed(error: Exception) -> Any:
    """The result of a request in a batch that ended with an error."""
    from vllm_omni.diffusion.data import DiffusionOutput

    logger.error("a request of a batch failed", exc_info=error)
    return DiffusionOutput(error=f"{type(error).__name__}: {error}")


def wrap_post_processor(file: Any, name: str) -> None:
    """Make the pipeline's post-processor accept a rollout: upstream's accepts media alone.

    An image with transparency is laid over white in a rollout: trainer and rewards write and score three channels, of a
    film behind its frames. VeRL-Omni asks for pixels as an "image", a word that no post-processor of films has.

    Args:
        file: module of the pipeline, where the engine looks it up.
        name: of the function there that makes the post-processor.
    """
    from verl_omni.pipelines.diffusion_rollout_output import wrap_rollout_postprocessor

    make = getattr(file, name)

    @functools.wraps(make)
    def rollout_post_processor(config: Any) -> Callable[..., Any]:
        wrapped: Callable[..., Any] = wrap_rollout_postprocessor(make(config))

        @functools.wraps(wrapped)
        def processed(data: Any, **kwargs: Any) -> Any:
            if getattr(kwargs.get("sampling_params"), "output_type", None) == PIXELS:
                kwargs["sampling_params"] = copy.copy(kwargs["sampling_params"])
                kwargs["sampling_params"].output_type = None
            result = wrapped(data, **kwargs)
            if not isinstance(result, dict) or not isinstance(result.get("payload"), dict):
                return result
            return {**result, "payload": {key: _as_trained_on(media) for key, media in result["payload"].items()}}

        return processed

    setattr(file, name, rollout_post_processor)


def _as_trained_on(media: Any) -> Any:
    """Images over white, and films ``(…, T, C, H, W)``."""
    if isinstance(media, list):
        return [_as_trained_on(image) for image in media]
    if isinstance(media, dict):
        return {key: _as_trained_on(part) for key, part in media.items()}
    if isinstance(media, np.ndarray) and media.ndim >= 4 and media.shape[-1] == 3:
        return torch.from_numpy(media).movedim(-1, -3)
    if getattr(media, "mode", None) != "RGBA":
        return media
    from PIL import Image

    return Image.alpha_composite(Image.new("RGBA", media.size, "white"), media).convert("RGB")
