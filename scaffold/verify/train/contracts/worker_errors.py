"""No worker reports an error; the trainer goes on after some of them."""

from __future__ import annotations

from scaffold.verify.rollout.check import Check, Measurement
from scaffold.verify.train.contract import Training

CHECK = Check("worker-errors", "No worker of the engine reports an error", 0.0, "lines")


def measure(training: Training) -> Measurement:
    """Count lines of the log, each once."""
    errors = training.run.errors
    told = f"{errors[0]}; all it printed: {training.run.log}" if errors else "none in the log"
    return Measurement("", float(len(errors)), told)
