"""There is something to learn from: the norm of the gradient is finite and not zero."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training

NAME = "actor/grad_norm"
CHECK = Check("gradient", "The gradient is finite and not zero at every step", 0.0, "steps")


def measure(training: Training) -> Measurement:
    """Count the steps without one."""
    values = training.run.series(NAME)
    if not values:
        raise NotApplicable("no step was taken")
    bad = [value for value in values if not math.isfinite(value) or value <= 0]
    finite = [value for value in values if math.isfinite(value)]
    told = f"its norm is {min(finite):.2g} to {max(finite):.2g}" if finite else f"the trainer logged no {NAME}"
    return Measurement("", float(len(bad)), told)
