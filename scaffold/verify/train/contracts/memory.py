"""What pushes of weights do to the engine's memory."""

from __future__ import annotations

from collections import defaultdict

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.variants import Variant


class Storage:
    """A push writes into the memory that is there: what lies elsewhere is outside of the pool that sleep gives back."""

    CHECK = Check(
        "storage", "Pushes leave every parameter of the engine where it lies in memory", 0.0, "parameters", (11,)
    )

    @staticmethod
    def measure(training: Training) -> Measurement:
        """Take the most parameters that one push moved."""
        pushes = [push for push in training.run.pushes if not push.error]
        if not pushes:
            raise NotApplicable("no push was seen")
        moved = max(push.moved for push in pushes)
        told = f"of {len(pushes)} pushes" if not moved else "write into parameters in place; do not assign their data"
        return Measurement("", float(moved), told)


class Sleep:
    """An engine that sleeps gives its memory back, after pushes as before them."""

    CHECK = Check("sleep", "Asleep, the engine holds no more memory after pushes than before them", 64.0, "MiB", (11,))

    @staticmethod
    def applies(variant: Variant) -> bool:
        """Where the engine sleeps."""
        return variant.sleeps

    @staticmethod
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
