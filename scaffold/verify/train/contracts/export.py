"""What was trained can be used: exported as a release it makes the images of the last validation, and trains on."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.record import LOG_PROB
from scaffold.verify.train.variants import Variant

CHECK = Check(
    "export", "The exported model makes the last validation's images in the real engine", None, "levels", (36,)
)
# Of 255, as the mean of an image: float32 merges to the last bit or two, and bf16 rounds anew.
LIMITS = {"float32": 0.05, "bfloat16": 1.0}
SEEN = 2.0  # how much further the untrained images have to be away


def applies(variant: Variant) -> bool:
    """Where there is a checkpoint and a last validation."""
    return variant.exports


def measure(training: Training) -> Measurement:
    """Compare the images; a step of training from the export has to agree with the rollout, too."""
    found = training.exported
    limit = LIMITS[training.variant.dtype]
    if found is None:
        raise NotApplicable("there was no checkpoint to export")
    if found.problem is not None:
        return Measurement("", math.inf, found.problem, limit=limit)
    assert found.run is not None
    told = f"{found.moved} of {found.held} tensors moved"
    taken = [step.number for step in found.run.steps]
    if found.run.problem is not None or taken != [1]:
        problem = found.run.problem or f"it took the steps {taken}"
        return Measurement(
            "", math.inf, f"{told}; training from it: {problem}; all it printed: {found.run.log}", limit=limit
        )
    difference = found.run.steps[0].metric(LOG_PROB)
    told += f"; a step from the export, log-probs {difference:.1e} apart"
    if not difference <= max(training.log_prob_limits[0]):
        return Measurement("", math.inf, told, limit=limit)
    if found.apart is None or found.untrained is None:
        raise NotApplicable(f"{told}; no row of the data says that it is of the test split")
    told += f"; before training they are {found.untrained:.2g} levels away"
    if found.untrained <= SEEN * found.apart:
        raise NotApplicable(f"{told}, with the export {found.apart:.2g}: too close to tell them apart")
    return Measurement("", found.apart, told, limit=limit)
