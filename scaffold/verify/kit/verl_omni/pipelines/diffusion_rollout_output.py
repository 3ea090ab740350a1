"""How a rollout adapter of verl-omni main returns media, trajectory and metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from omni_scaffold_kit.profile import require_module
from vllm_omni.diffusion.data import DiffusionOutput

require_module(__name__)


def rollout_output(
    *,
    media: Any,
    media_key: str = "image",
    trajectory_latents: Any = None,
    trajectory_log_probs: Any = None,
    trajectory_timesteps: Any = None,
    trajectory_decoded: Any = None,
    prompt_embeddings: Mapping[str, Any] | None = None,
    rl: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    to_cpu: bool = True,
) -> DiffusionOutput:
    """Wrap one rollout.

    Args:
        media: decoded result, stored in ``output["payload"][media_key]``.
        media_key: ``image``, ``video``, ``audio`` or ``output``.
        trajectory_latents: ``(B, window + 1, ...)`` float32.
        trajectory_log_probs: ``(B, window)`` float32.
        trajectory_timesteps: ``(B, window)``.
        trajectory_decoded: decoded intermediate media, if any.
        prompt_embeddings: tensors that training needs, stored in ``output["metadata"]["prompt_embeddings"]``.
        rl: tensors of the algorithm, stored in ``output["metadata"]["rl"]``.
        metadata: anything else; does not reach training.
        to_cpu: move every tensor to the CPU, detached.
    """
    extras = {"prompt_embeddings": prompt_embeddings, "rl": rl}
    described = {**(metadata or {}), **{key: dict(value) for key, value in extras.items() if value is not None}}
    return DiffusionOutput(
        output={"payload": {media_key: media}, "metadata": described},
        trajectory_latents=trajectory_latents,
        trajectory_log_probs=trajectory_log_probs,
        trajectory_timesteps=trajectory_timesteps,
        trajectory_decoded=trajectory_decoded,
        to_cpu=to_cpu,
    )


def wrap_rollout_postprocessor(postprocess: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that takes media take what :func:`rollout_output` stores.

    Args:
        postprocess: of the pipeline; a dictionary that it returns becomes the payload.

    Raises:
        ValueError: when called with a payload that has no media.
    """

    @functools.wraps(postprocess)
    def opened(data: Any, **settings: Any) -> Any:
        if not _is_stored(data):
            return postprocess(data, **settings)
        key = next((key for key in ("image", "video", "output", "audio") if key in data["payload"]), None)
        if key is None:
            raise ValueError("the payload holds no image, video, output or audio")
        described = dict(data.get("metadata") or {})
        made = postprocess(data["payload"][key], **settings)
        if _is_stored(made):
            return {"payload": dict(made["payload"]), "metadata": {**(made.get("metadata") or {}), **described}}
        return {"payload": dict(made) if isinstance(made, Mapping) else {key: made}, "metadata": described}

    return opened


def _is_stored(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("payload"), Mapping)
