"""What a step is trained on: its prompts, its windows, the images that are kept."""

from __future__ import annotations

from collections import Counter

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant


class Data:
    """A run that goes on from a checkpoint goes on with the data where it stopped."""

    CHECK = Check("data-after", "A resumed run neither repeats nor loses data", 0.0, "prompts", (36,))

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where it is tried."""
        return variant.resumes

    @staticmethod
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


class Window:
    """The SDE window moves from step to step, and all samples of a step share it."""

    CHECK = Check(
        "window", "All requests, ranks and replicas of a step share one SDE window, and it moves", 0.0, "steps", (15,)
    )
    ENOUGH = 8  # steps after which one window for all of them is not a coincidence

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Not where a batch may hold images that were asked for in different steps, or nothing is noised."""
        return not variant.lags and variant.scores_steps

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Count the steps with several windows, or all of them where the window stands still."""
        windows = [
            {tuple(round(sigma, 5) for sigma in sample) for sample in step.windows or ()} for step in training.run.steps
        ]
        if not windows or not all(windows):
            raise NotApplicable("the batches did not hold the noise levels of their windows")
        several = [number for number, found in enumerate(windows, 1) if len(found) > 1]
        if several:
            return Measurement("", float(len(several)), f"step {several[0]} has {len(windows[several[0] - 1])} windows")
        seen = set().union(*windows)
        if len(seen) > 1:
            return Measurement("", 0.0, f"{len(seen)} windows in {len(windows)} steps")
        if len(windows) < Window.ENOUGH:
            raise NotApplicable(f"one window in {len(windows)} steps may be chance; {Window.ENOUGH} steps tell")
        return Measurement("", float(len(windows)), f"one window for all {len(windows)} steps: {sorted(seen)[0]}")


class RolloutData:
    """The images of each step are kept with their scores, where the trainer is told to."""

    CHECK = Check("rollout-data", "Images of each step are kept, with finite scores", 0.0, "steps without them", ())

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where the images of validations are kept, too."""
        return variant.exports

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Look into the trainer's ``rollout_data_dir``."""
        if (samples := training.run.samples) is None:
            raise NotApplicable("the run keeps no images: the trainer writes none of films")
        missing = [step.number for step in training.run.steps if not samples.get(step.number)]
        if missing:
            return Measurement("", float(len(missing)), f"no image with a finite score of step {missing[0]}")
        return Measurement("", 0.0, f"{sum(samples.values())} images of {len(samples)} steps")
