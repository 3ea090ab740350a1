"""Without triton, vllm puts a stand-in in its place, which imports and cannot be called: a model's kernels stay away.

Only modules whose every import in the model's folder is prepared for that, as at level ``rollout``; the model then
takes its plain path.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

PLACES: dict[str, tuple[str, ...]] = {}
MODELS = "vllm_omni.diffusion.models"


def patch(_: Any) -> None:
    """Before the model's folder is imported, which lies below this module."""
    from scaffold.verify.rollout.engine_side.settings import withhold_kernels

    for name in _sources():
        withhold_kernels(name)


def hooks() -> dict[str, Callable[[Any], None]]:
    """Withhold those of the run's sources, where it has any."""
    return {MODELS: patch} if _sources() else {}


def _sources() -> list[str]:
    names = os.environ.get("OMNI_SCAFFOLD_TRAIN_SOURCES", "").split(",")
    return [name for name in names if name.startswith(MODELS)]
