"""The images of each step are kept with their scores, where the trainer is told to."""

from __future__ import annotations

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant

CHECK = Check("rollout-data", "Images of each step are kept, with finite scores", 0.0, "steps without them", ())


def applies(variant: Variant) -> bool:
    """Where the images of validations are kept, too."""
    return variant.exports


def measure(training: Training) -> Measurement:
    """Look into the trainer's ``rollout_data_dir``."""
    if (samples := training.run.samples) is None:
        raise NotApplicable("the run keeps no images: the trainer writes none of films")
    missing = [step.number for step in training.run.steps if not samples.get(step.number)]
    if missing:
        return Measurement("", float(len(missing)), f"no image with a finite score of step {missing[0]}")
    return Measurement("", 0.0, f"{sum(samples.values())} images of {len(samples)} steps")
