"""Training's log-probs are the rollout's at every step, also after updates."""

from __future__ import annotations

import math
from contextlib import suppress

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training, not_a_number
from scaffold.verify.train.record import LOG_PROB, RunRecord
from scaffold.verify.train.variants import Variant

BY_LEVEL = "rollout_corr/logprob_abs_diff/ts_"
CHECK = Check(
    "log-prob",
    "At every step training recomputes the rollout's log-probs",
    None,
    "absolute",
    (1, 5, 6, 7, 11),
)


def applies(variant: Variant) -> bool:
    """Not where no step of a rollout is scored."""
    return variant.scores_steps


def measure(training: Training) -> Measurement:
    """Take the trainer's own largest difference of each step; report the step that is worst against its limit."""
    # Images that were made ahead have older weights' log-probs, so the run without updates is looked at.
    run = training.floor if training.variant.lags else training.run
    values = [] if run is None else run.series(LOG_PROB)
    if not values:
        raise NotApplicable("no step was taken")
    limits, reason = training.log_prob_limits
    series = {"log10 of the largest difference": [_log(value) for value in values]}
    if training.beside is not None:
        name, other = training.beside
        series[f"the same of {name}"] = [_log(value) for value in other.series(LOG_PROB)]
    if missing := not_a_number(values):
        return Measurement("", math.inf, f"the trainer logged no {LOG_PROB} in {missing} steps", limit=max(limits))
    worst = max(range(len(values)), key=lambda at: values[at] / limits[at])
    value, limit = values[worst], limits[worst]
    told = f"of {len(values)} steps; {reason}{_by_level(run)}"
    if value > limit and values[0] <= limits[0]:
        told = f"step 1 agrees, step {worst + 1} does not: updates do not reach the rollout as training has them"
    return Measurement("", value, told, limit=limit, series=series)


def _by_level(run: RunRecord | None) -> str:
    """The largest mean difference of a step by noise level, where the trainer logs it: it grows as noise falls."""
    found: dict[float, float] = {}
    for step in run.steps if run is not None else ():
        for name, value in step.metrics.items():
            if name.startswith(BY_LEVEL):
                with suppress(ValueError):
                    level = float(name.removeprefix(BY_LEVEL))
                    found[level] = max(found.get(level, 0.0), value)
    shown = ", ".join(f"{level:g}: {found[level]:.1e}" for level in sorted(found, reverse=True))
    return f"; by noise level {shown}" if shown else ""


def _log(value: float) -> float:
    return math.log10(max(value, 1e-9)) if math.isfinite(value) else math.nan
