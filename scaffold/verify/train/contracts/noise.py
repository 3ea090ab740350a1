"""Images of a step start from noise of their own."""

from __future__ import annotations

from scaffold.algorithms import ALGORITHMS
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training

CHECK = Check("noise", "Prompts of a step and members of a group start from different noise", 0.0, "steps")
# Distances of independent noise are nearly all the same; of one noise there is what a few steps under two prompts add.
NEAR = 0.5
SAME = 1e-3
SHARED_START = "SharedStart"
KINDS = ("two images of one prompt", "images of two prompts")


def measure(training: Training) -> Measurement:
    """Count the steps in which two samples begin their windows much closer to each other than any two do."""
    steps = [(step.number, step.closest) for step in training.run.steps if step.closest is not None]
    if not steps:
        raise NotApplicable("the batches did not hold latents, or one image each")
    least = [
        min((pair[kind], number) for number, pair in steps if pair[kind] is not None)
        if any(pair[kind] is not None for _, pair in steps)
        else None
        for kind in range(len(KINDS))
    ]
    told = ", ".join(
        f"{value:.2f} for {name} (step {number})"
        for name, found in zip(KINDS, least, strict=False)
        if found
        for value, number in [found]
    )
    told = f"closest of {len(steps)} steps, over the median distance: {told}"
    if training.variant.algorithm is not None and ALGORITHMS[training.variant.algorithm].rollout == SHARED_START:
        apart = [
            number for number, (one, two) in steps if one is None or one > SAME or (two is not None and two < NEAR)
        ]
        return Measurement("", float(len(apart)), f"images of a prompt are to begin with one noise; {told}")
    shared = [number for number, pair in steps if any(value is not None and value < NEAR for value in pair)]
    return Measurement("", float(len(shared)), told)
