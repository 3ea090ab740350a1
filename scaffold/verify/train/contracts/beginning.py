"""An algorithm that scores no step begins at the policy that it compares with, and moves away from it."""

from __future__ import annotations

import math

from scaffold.algorithms import ALGORITHMS
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training, not_a_number
from scaffold.verify.train.variants import Variant

CHECK = Check(
    "beginning", "The first prediction is that of the policy that is compared with, a later one is not", 0.0, "steps"
)
EXACT = 1e-6  # relative, of the mean of float32 numbers


def applies(variant: Variant) -> bool:
    """Where the trainer logs how far the two are apart."""
    return variant.algorithm is not None and ALGORITHMS[variant.algorithm].begins is not None


def measure(training: Training) -> Measurement:
    """Take what the trainer logs of both policies' predictions."""
    begins = ALGORITHMS[training.variant.algorithm or ""].begins
    assert begins is not None
    metric, value = begins
    found = training.run.series(metric)
    if not found:
        raise NotApplicable("no step was taken")
    if not_a_number(found):
        return Measurement("", math.inf, f"the trainer logged no {metric} in some steps")
    told = f"{metric} {', '.join(f'{one:.6g}' for one in found)}, and {value:.6g} where both are alike"
    apart = [abs(one - value) > EXACT * abs(value) for one in found]
    wrong = apart[0] + (len(found) > 1 and not any(apart))
    return Measurement("", float(wrong), told)
