"""The reward rises: more than it does with a learning rate of 0, and as much as it does for the reference."""

from __future__ import annotations

import math
from statistics import fmean, variance

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.record import RunRecord
from scaffold.verify.train.variants import VARIANTS, Variant

CHECK = Check("reward", "The reward rises", 1.0, "needed over seen")
STEPS = 16
STANDARD_ERRORS = 4.0


def applies(variant: Variant) -> bool:
    """Only where that many steps are taken: by the ordinary variant, and where no step has a log-prob to compare."""
    return variant.name == VARIANTS[0].name or not variant.scores_steps


def measure(training: Training) -> Measurement:
    """Compare the last quarter of the steps with the first, against the run that learns nothing.

    The standard error is that of a difference of means of independent groups, a group being the images of one prompt
    in one step: ``sqrt(sum(var_i / n_i))`` over both quarters of both runs.
    """
    run, control = training.run, training.control
    if training.steps < STEPS:
        raise NotApplicable(f"{training.steps} steps show nothing; --steps {STEPS} does")
    if len(run.steps) < STEPS or control is None or len(control.steps) < STEPS:
        raise NotApplicable("the run, or its control with a learning rate of 0, did not take all its steps")
    gain, spread = _gain(run)
    flat, more = _gain(control)
    error = math.sqrt(spread + more)
    rise = (gain - flat) / error if error > 0 else math.nan
    told = f"it rises by {gain:.4f}, with a learning rate of 0 by {flat:.4f}: {rise:.1f} standard errors of {error:.4f}"
    value = STANDARD_ERRORS / rise if rise > 0 else math.inf
    if training.gain is not None:
        told += f"; the reference rises by {training.gain:.4f}, and half of that is asked for"
        value = max(value, 0.5 * training.gain / gain) if gain > 0 else math.inf
    series = {"reward": run.series("critic/rewards/mean"), "learning rate 0": control.series("critic/rewards/mean")}
    if training.beside is not None:
        name, other = training.beside
        series[name] = other.series("critic/rewards/mean")
    return Measurement("", value, told, series=series)


def _gain(run: RunRecord) -> tuple[float, float]:
    """How much the mean of the last quarter's groups lies above that of the first's, and its variance."""
    quarter = len(run.steps) // 4
    first = [reward for step in run.steps[:quarter] for reward in step.rewards]
    last = [reward for step in run.steps[-quarter:] for reward in step.rewards]
    if len(first) < 2 or len(last) < 2:
        raise NotApplicable("the rewards of single groups were not recorded")
    return fmean(last) - fmean(first), sum(variance(values) / len(values) for values in (first, last))
