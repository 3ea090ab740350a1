"""DiffusionNFT begins at the policy that sampled, and moves away from it."""

from __future__ import annotations

import math

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training, not_a_number
from scaffold.verify.train.variants import Variant

CHECK = Check("old-policy", "The first prediction is that of the policy that sampled, a later one is not", 0.0, "steps")
DEVIATION, LOSS = "actor/old_deviate", "actor/policy_loss"


def applies(variant: Variant) -> bool:
    """Where the old policy is an adapter of its own."""
    return not variant.scores_steps


def measure(training: Training) -> Measurement:
    """Take the squared distance of both policies' predictions, which the trainer logs."""
    found, losses = training.run.series(DEVIATION), training.run.series(LOSS)
    if not found:
        raise NotApplicable("no step was taken")
    if not_a_number(found) or not_a_number(losses):
        return Measurement("", math.inf, f"the trainer logged no {DEVIATION} or {LOSS} in some steps")
    told = f"{DEVIATION} {', '.join(f'{value:.1e}' for value in found)}; {LOSS} {losses[0]:.3g} to {losses[-1]:.3g}"
    wrong = (found[0] != 0.0) + (len(found) > 1 and max(found) == 0.0)
    return Measurement("", float(wrong), told)
