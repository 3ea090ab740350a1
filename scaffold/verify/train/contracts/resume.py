"""A run goes on from its checkpoint as if it had not stopped."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.record import LOG_PROB
from scaffold.verify.train.variants import Variant

CHECK = Check("log-prob-after", "After a resume training recomputes the rollout's log-probs", None, "absolute", (36,))


def applies(variant: Variant) -> bool:
    """Where it is tried."""
    return variant.resumes


def measure(training: Training) -> Measurement:
    """Take the difference of the step after the resume."""
    resumed = training.resumed
    if resumed is None:
        raise NotApplicable("there was no checkpoint to go on from")
    limit = training.log_prob_limits[0][training.steps]
    numbers = [step.number for step in resumed.steps]
    if numbers != [training.steps + 1]:
        told = f"step {training.steps + 1} was to follow, and the run took {numbers or 'none'}"
        return Measurement(
            "", math.inf, f"{told}; {resumed.problem or 'it ended well'}; all it printed: {resumed.log}", limit=limit
        )
    value = resumed.steps[0].metric(LOG_PROB)
    return Measurement("", value, f"step {numbers[0]} after the checkpoint of step {training.steps}", limit=limit)
