"""The trainer gets to its end."""

from __future__ import annotations

from scaffold.verify.rollout.check import Check, Measurement
from scaffold.verify.train.contract import Training

CHECK = Check("end", "The package's own smoke script ends well in the real trainer", 0.0, "steps missing")


def measure(training: Training) -> Measurement:
    """Count the steps that were not taken."""
    run = training.run
    missing = training.steps - len(run.steps)
    seconds = [step.metric("timing_s/step") for step in run.steps]
    told = f"{len(run.steps)} steps in {run.seconds:.0f} s"
    if seconds:
        told += f", {sum(seconds) / len(seconds):.0f} s a step"
    if run.problem:
        # A script that refuses after its last step has taken all of them, and has not ended well.
        return Measurement("", float(max(missing, 1)), f"{told}; {run.problem}; all it printed: {run.log}")
    return Measurement("", float(missing), told, seconds=run.seconds)
