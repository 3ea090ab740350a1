"""Validation runs after training."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant

CHECK = Check("validation", "Validation runs and gives a score", 0.0, "scores missing", ())


def applies(variant: Variant) -> bool:
    """Where it is switched on."""
    return variant.validates


def measure(training: Training) -> Measurement:
    """Look for its metrics in the last step."""
    if len(training.run.steps) < training.steps:
        raise NotApplicable("the run did not get to validation")
    found = {name: value for name, value in training.run.steps[-1].metrics.items() if name.startswith("val-")}
    scores = [value for name, value in found.items() if "reward" in name or "score" in name]
    if not scores or not all(map(math.isfinite, scores)):
        return Measurement(
            "", 1.0, f"the trainer logged no score of it; it has {', '.join(sorted(found)) or 'no val- metric'}"
        )
    return Measurement("", 0.0, f"{len(found)} metrics, score {scores[0]:.4f}")
