"""How a rollout adapter of verl-omni main returns media, trajectory and metadata."""

from __future__ import annotations

from collections.abc import Mapping
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
