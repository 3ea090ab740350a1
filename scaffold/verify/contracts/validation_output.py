"""Validation is the plain integration and sends no trajectory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.rollout import TRAJECTORY

ID = "validation-output"
TITLE = "a validation request, at noise level 0 and without a training step, gets the plain integration, no trajectory"
NOT_RECORDED = "the loop is the pipeline's own: see rollout-validation and -plain of level rollout"
LIMIT = 1e-5  # relative; a step with noise gives 1e-1
STEPS = 8


def run(subject: Any) -> Measured:
    """Send what the agent loop sends for validation, with the settings of the window left in it."""
    driver = drive(subject)
    window: dict[str, Any] = {"sde_window_size": 2, "sde_window_range": [0, STEPS // 2]}
    rolled = driver.roll_out(steps=STEPS, noise_level=0.0, logprobs=False, global_steps=None, **window)
    levels = [*rolled.sigmas, 0.0]
    expected = rolled.walked[0].double()
    for now, following in pairwise(levels):
        expected = expected + (following - now) * driver.velocity(expected, now)
    value = relative(rolled.walked[-1].double(), expected)
    kept = {name: getattr(rolled, name) for name in TRAJECTORY}
    size = sum(tensor.nbytes for tensor in kept.values() if isinstance(tensor, torch.Tensor))
    names = ", ".join(name for name, tensor in kept.items() if tensor is not None)
    problems = [f"returns {names}, {size} bytes at this size, which nobody reads in validation"] if names else []
    return Measured(f"the last latents are {value:.1e} from the plain integration", problems, value, LIMIT, "relative")
