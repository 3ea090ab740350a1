"""The run itself: it gets to its end without errors, has a gradient and validates."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant


class End:
    """The trainer gets to its end."""

    CHECK = Check("end", "The package's own smoke script ends well in the real trainer", 0.0, "steps missing")

    @staticmethod
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


class WorkerErrors:
    """No worker reports an error; the trainer goes on after some of them."""

    CHECK = Check("worker-errors", "No worker of the engine reports an error", 0.0, "lines")

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Count lines of the log, each once."""
        errors = training.run.errors
        told = f"{errors[0]}; all it printed: {training.run.log}" if errors else "none in the log"
        return Measurement("", float(len(errors)), told)


class Gradient:
    """There is something to learn from: the norm of the gradient is finite and not zero."""

    NAME = "actor/grad_norm"
    CHECK = Check("gradient", "The gradient is finite and not zero at every step", 0.0, "steps")

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Count the steps without one."""
        values = training.run.series(Gradient.NAME)
        if not values:
            raise NotApplicable("no step was taken")
        bad = [value for value in values if not math.isfinite(value) or value <= 0]
        finite = [value for value in values if math.isfinite(value)]
        told = (
            f"its norm is {min(finite):.2g} to {max(finite):.2g}"
            if finite
            else f"the trainer logged no {Gradient.NAME}"
        )
        return Measurement("", float(len(bad)), told)


class Validation:
    """Validation runs after training."""

    CHECK = Check("validation", "Validation runs and gives a score", 0.0, "scores missing", ())

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where it is switched on."""
        return variant.validates

    @staticmethod
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
