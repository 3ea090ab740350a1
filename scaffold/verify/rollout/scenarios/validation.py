"""What the agent loop sends for validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 45
DTYPE = "float32"
SILENT = Check(
    "rollout-validation",
    "A validation request, at noise level 0 and without a training step, gets its output and no trajectory",
    0,
    "tensors",
)
PLAIN = Check(
    "rollout-validation-plain",
    "The latents of a validation request are the plain integration of its velocities: no noise in any step",
    1e-5,  # a step with noise gives 1e-1
    "relative",
)
CHECKS = (SILENT, PLAIN)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Leave the settings of the window in, as verl-omni does."""
    from scaffold.verify.rollout.engine_side.recorder import from_plain

    steps = bench.recipe.num_inference_steps
    recipe = replace(bench.recipe, noise_level=0.0, sde_window_size=2, sde_window_range=(0, max(steps // 2, 2)))
    found, taken = bench.validate(recipe)
    kept = [name for name, value in found.items() if value is not None]
    yield Measurement(SILENT.id, float(len(kept)), f"returns {', '.join(kept) or 'no trajectory'}", floor=0.0)
    value = from_plain(taken)
    told = f"after {len(taken)} steps" if taken else "no step of verl-omni's scheduler was seen"
    yield Measurement(PLAIN.id, value, told, floor=2**-23, skipped=value is None)
