"""A push writes into the memory that is there: what lies elsewhere is outside of the pool that sleep gives back."""

from __future__ import annotations

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training

CHECK = Check("storage", "Pushes leave every parameter of the engine where it lies in memory", 0.0, "parameters", (11,))


def measure(training: Training) -> Measurement:
    """Take the most parameters that one push moved."""
    pushes = [push for push in training.run.pushes if not push.error]
    if not pushes:
        raise NotApplicable("no push was seen")
    moved = max(push.moved for push in pushes)
    told = f"of {len(pushes)} pushes" if not moved else "write into parameters in place; do not assign their data"
    return Measurement("", float(moved), told)
