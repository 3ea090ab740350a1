"""Sources write a precision or ``autocast`` out; here they follow the run's, as at level ``rollout``.

Which folder of vllm-omni and which package are meant is the run's to say: ``OMNI_SCAFFOLD_TRAIN_SOURCES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

PLACES: dict[str, tuple[str, ...]] = {}


def patch(module: Any) -> None:
    """Change the name ``torch`` inside one module."""
    from scaffold.verify.rollout.engine_side.precision import follow

    follow(module, os.environ.get("OMNI_SCAFFOLD_TRAIN_DTYPE", "float32"))


def hooks() -> dict[str, Callable[[Any], None]]:
    """Change the run's sources."""
    sources = os.environ.get("OMNI_SCAFFOLD_TRAIN_SOURCES", "").split(",")
    return {f"{name}.*": patch for name in sources if name}
