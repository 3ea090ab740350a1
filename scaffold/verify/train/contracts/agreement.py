"""Training and rollout agree: at every step, in the update's ratio, after a resume and in the export."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import ClassVar

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training, not_a_number
from scaffold.verify.train.record import LOG_PROB, RunRecord
from scaffold.verify.train.variants import Variant

BY_LEVEL = "rollout_corr/logprob_abs_diff/ts_"


class LogProb:
    """Training's log-probs are the rollout's at every step, also after updates."""

    CHECK = Check(
        "log-prob",
        "At every step training recomputes the rollout's log-probs",
        None,
        "absolute",
        (1, 5, 6, 7, 11),
    )

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Not where no step of a rollout is scored."""
        return variant.scores_steps

    @staticmethod
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


class Ratio:
    """With one optimizer step a training step, the policy that is updated is the one that sampled."""

    CHECK = Check("ratio", "The ratio of the update is 1 and nothing is clipped", None, "absolute", (13,))
    # The clip range of the recipe; what bfloat16 rounds a sum to.
    LIMITS: ClassVar = {"float32": 1e-5, "bfloat16": 1e-2}

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Not where no step of a rollout is scored."""
        return variant.scores_steps

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Take the largest distance of the mean ratio from 1."""
        ratios, clipped = training.run.series("actor/ratio_mean"), training.run.series("actor/pg_clipfrac")
        if not ratios:
            raise NotApplicable("no step was taken")
        limit = Ratio.LIMITS[training.variant.dtype]
        if training.variant.algorithm == "flow_dppo":  # which masks steps in place of clipping ratios
            clipped = training.run.series("actor/masked_fraction")
        if not_a_number(ratios) or not_a_number(clipped):
            return Measurement("", math.inf, "the trainer logged no ratio in some steps", limit=limit)
        largest = max(abs(ratio - 1) for ratio in ratios)
        if training.variant.dtype == "float32" and max(clipped) > 0:
            return Measurement("", math.inf, f"{max(clipped):.0%} of a step's log-probs are clipped", limit=limit)
        return Measurement("", largest, f"of {len(ratios)} steps, clip fraction {max(clipped):.2g}", limit=limit)


class Resume:
    """A run goes on from its checkpoint as if it had not stopped."""

    CHECK = Check(
        "log-prob-after", "After a resume training recomputes the rollout's log-probs", None, "absolute", (36,)
    )

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where it is tried."""
        return variant.resumes

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Take the difference of the step after the resume."""
        resumed = training.resumed
        if resumed is None:
            raise NotApplicable("there was no checkpoint to go on from")
        limit = training.log_prob_limits[0][training.steps]
        numbers = [step.number for step in resumed.steps]
        if numbers != [training.steps + 1]:
            told = f"step {training.steps + 1} was to follow, and the run took {numbers or 'none'}"
            return Measurement(
                "",
                math.inf,
                f"{told}; {resumed.problem or 'it ended well'}; all it printed: {resumed.log}",
                limit=limit,
            )
        value = resumed.steps[0].metric(LOG_PROB)
        return Measurement("", value, f"step {numbers[0]} after the checkpoint of step {training.steps}", limit=limit)


class Export:
    """What was trained can be used: exported as a release it makes the images of the last validation, and trains on."""

    CHECK = Check(
        "export", "The exported model makes the last validation's images in the real engine", None, "levels", (36,)
    )
    # Of 255, as the mean of an image: float32 merges to the last bit or two, and bf16 rounds anew.
    LIMITS: ClassVar = {"float32": 0.05, "bfloat16": 1.0}
    SEEN = 2.0  # how much further the untrained images have to be away

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where there is a checkpoint and a last validation."""
        return variant.exports

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Compare the images; a step of training from the export has to agree with the rollout, too."""
        found = training.exported
        limit = Export.LIMITS[training.variant.dtype]
        if found is None:
            raise NotApplicable("there was no checkpoint to export")
        if found.problem is not None:
            return Measurement("", math.inf, found.problem, limit=limit)
        assert found.run is not None
        told = f"{found.moved} of {found.held} tensors moved"
        taken = [step.number for step in found.run.steps]
        if found.run.problem is not None or taken != [1]:
            problem = found.run.problem or f"it took the steps {taken}"
            return Measurement(
                "", math.inf, f"{told}; training from it: {problem}; all it printed: {found.run.log}", limit=limit
            )
        difference = found.run.steps[0].metric(LOG_PROB)
        told += f"; a step from the export, log-probs {difference:.1e} apart"
        if not difference <= max(training.log_prob_limits[0]):
            return Measurement("", math.inf, told, limit=limit)
        if found.apart is None or found.untrained is None:
            raise NotApplicable(f"{told}; no row of the data says that it is of the test split")
        told += f"; before training they are {found.untrained:.2g} levels away"
        if found.untrained <= Export.SEEN * found.apart:
            raise NotApplicable(f"{told}, with the export {found.apart:.2g}: too close to tell them apart")
        return Measurement("", found.apart, told, limit=limit)
