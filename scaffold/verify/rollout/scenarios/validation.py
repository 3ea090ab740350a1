"""What the agent loop sends for validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import Bench

ORDER = 45
DTYPE = "float32"
SILENT = Check(
    "rollout-validation",
    "A validation request, at noise level 0 and without a training step, gets its output and no trajectory",
    0,
    "tensors",
)
CHECKS = (SILENT,)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Leave the settings of the window in, as verl-omni does."""
    steps = bench.recipe.num_inference_steps
    recipe = replace(bench.recipe, noise_level=0.0, sde_window_size=2, sde_window_range=(0, max(steps // 2, 2)))
    kept = [name for name, value in bench.validate(recipe).items() if value is not None]
    yield Measurement(SILENT.id, float(len(kept)), f"returns {', '.join(kept) or 'no trajectory'}", floor=0.0)
