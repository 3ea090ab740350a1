"""The SDE window moves from step to step, and all samples of a step share it."""

from __future__ import annotations

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant

CHECK = Check(
    "window", "All requests, ranks and replicas of a step share one SDE window, and it moves", 0.0, "steps", (15,)
)
ENOUGH = 8  # steps after which one window for all of them is not a coincidence


def applies(variant: Variant) -> bool:
    """Not where a batch may hold images that were asked for in different steps, or nothing is noised."""
    return not variant.lags and variant.scores_steps


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
    if len(windows) < ENOUGH:
        raise NotApplicable(f"one window in {len(windows)} steps may be chance; {ENOUGH} steps tell")
    return Measurement("", float(len(windows)), f"one window for all {len(windows)} steps: {sorted(seen)[0]}")
