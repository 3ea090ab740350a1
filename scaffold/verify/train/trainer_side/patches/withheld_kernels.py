"""Without triton, vllm puts a stand-in in its place, which imports and cannot be called: a model's kernels stay away.

Only modules whose every import in the model's folder is prepared for that, as at level ``rollout``; the model then
takes its plain path.
"""

from __future__ import annotations

import os
from typing import Any

PLACES: dict[str, tuple[str, ...]] = {}
MODELS = "vllm_omni.diffusion.models"
SOURCES = [name for name in os.environ.get("OMNI_SCAFFOLD_TRAIN_SOURCES", "").split(",") if name.startswith(MODELS)]


def patch(_: Any) -> None:
    """Before the model's folder is imported, which lies below this module."""
    from scaffold.verify.rollout.engine_side.settings import withhold_kernels

    for name in SOURCES:
        withhold_kernels(name)


HOOKS = {MODELS: patch}
