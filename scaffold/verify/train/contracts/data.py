"""A run that goes on from a checkpoint goes on with the data where it stopped."""

from __future__ import annotations

from collections import Counter

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant

CHECK = Check("data-after", "A resumed run neither repeats nor loses data", 0.0, "prompts", (36,))


def applies(variant: Variant) -> bool:
    """Where it is tried."""
    return variant.resumes


def measure(training: Training) -> Measurement:
    """Count prompts of one pass over the data that came twice, or not at all.

    The data holds as many prompts as both runs train on together, each once.
    """
    resumed = training.resumed
    if resumed is None or not resumed.steps:
        raise NotApplicable("no step was taken after the checkpoint")
    steps = [*training.run.steps, *resumed.steps]
    if not all(step.prompts for step in steps):
        raise NotApplicable("the batches did not hold their prompts")
    seen = Counter(prompt for step in steps for prompt in step.prompts or ())
    if max(Counter(prompt for step in training.run.steps for prompt in step.prompts or ()).values()) > 1:
        raise NotApplicable("the data holds prompts more than once")
    repeated = sum(count - 1 for count in seen.values())
    told = f"{len(seen)} prompts in {len(steps)} steps"
    return Measurement(
        "", float(repeated), f"{told}; {repeated} came twice, so as many were lost" if repeated else told
    )
