"""An engine that sleeps gives its memory back, after pushes as before them."""

from __future__ import annotations

from collections import defaultdict

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant

CHECK = Check("sleep", "Asleep, the engine holds no more memory after pushes than before them", 64.0, "MiB", (11,))


def applies(variant: Variant) -> bool:
    """Where the engine sleeps."""
    return variant.sleeps


def measure(training: Training) -> Measurement:
    """Compare what each process of the engine holds asleep with what it held the first time."""
    allocated: dict[tuple[int, int], list[int]] = defaultdict(list)
    for sleep in training.run.sleeps:
        allocated[sleep.pid, sleep.rank].append(sleep.allocated)
    several = [values for values in allocated.values() if len(values) > 1]
    if not several:
        raise NotApplicable("the engine did not sleep twice")
    growth = max(max(values[1:]) - values[0] for values in several) / 2**20
    first = max(values[0] for values in several) / 2**20
    return Measurement("", growth, f"{first:.0f} MiB the first time, of {sum(map(len, several))} times")
