"""The engine warms up at 512×512, and some pipelines at all their frames: minutes on a CPU, at each of three starts.

It warms up at the run's own size instead. Releases that make that request elsewhere are left alone.
"""

from __future__ import annotations

import functools
import os
from typing import Any

PLACES = {
    "vllm_omni/diffusion/diffusion_engine.py:DiffusionEngine._make_dummy_request": ("", "eb628b4e6f2d"),
}


def patch(module: Any) -> None:
    """Make the warm-up request as large as the run's, which the smoke script is told."""
    sides = {"height": os.environ.get("HEIGHT", ""), "width": os.environ.get("WIDTH", "")}
    original = getattr(module.DiffusionEngine, "_make_dummy_request", None)
    if original is None or not all(side.isdigit() for side in sides.values()):
        return

    @functools.wraps(original)
    def small(self: Any, **asked: Any) -> Any:
        return original(self, **{**asked, **{name: int(side) for name, side in sides.items()}})

    module.DiffusionEngine._make_dummy_request = small


HOOKS = {"vllm_omni.diffusion.diffusion_engine": patch}
