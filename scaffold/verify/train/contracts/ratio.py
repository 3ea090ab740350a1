"""With one optimizer step a training step, the policy that is updated is the one that sampled."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training, not_a_number
from scaffold.verify.train.variants import Variant

CHECK = Check("ratio", "The ratio of the update is 1 and nothing is clipped", None, "absolute", (13,))
LIMITS = {"float32": 1e-5, "bfloat16": 1e-2}  # the clip range of the recipe; what bfloat16 rounds a sum to


def applies(variant: Variant) -> bool:
    """Not where no step of a rollout is scored."""
    return variant.scores_steps


def measure(training: Training) -> Measurement:
    """Take the largest distance of the mean ratio from 1."""
    ratios, clipped = training.run.series("actor/ratio_mean"), training.run.series("actor/pg_clipfrac")
    if not ratios:
        raise NotApplicable("no step was taken")
    limit = LIMITS[training.variant.dtype]
    if training.variant.algorithm == "flow_dppo":  # which masks steps in place of clipping ratios
        clipped = training.run.series("actor/masked_fraction")
    if not_a_number(ratios) or not_a_number(clipped):
        return Measurement("", math.inf, "the trainer logged no ratio in some steps", limit=limit)
    largest = max(abs(ratio - 1) for ratio in ratios)
    if training.variant.dtype == "float32" and max(clipped) > 0:
        return Measurement("", math.inf, f"{max(clipped):.0%} of a step's log-probs are clipped", limit=limit)
    return Measurement("", largest, f"of {len(ratios)} steps, clip fraction {max(clipped):.2g}", limit=limit)
