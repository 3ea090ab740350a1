"""The input of a contract of level ``train``, and the lookup of the contracts."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.exported import Exported
from scaffold.verify.train.record import LOG_PROB, RunRecord
from scaffold.verify.train.variants import VARIANTS, Variant

FLOORS = 3.0  # two roundings of one size, taken from other weights, differ by less


@dataclass(frozen=True)
class Training:
    """Everything that was run of one variant.

    Attributes:
        variant: what was tried.
        steps: training steps that were asked for.
        run: the run itself.
        control: the same with a learning rate of 0, where there was reason to run it.
        resumed: one more step from the checkpoint of ``run``, where the variant resumes.
        beside: another package under the same command, by its name.
        floor: the same steps without updates, in which rounding alone differs, where the variant's limit rests on it.
        exported: the export of the checkpoint of ``run``, and a step more from there.
        gain: how much the reward of the reference package rises in 16 steps, where it is known.
    """

    variant: Variant
    steps: int
    run: RunRecord
    control: RunRecord | None = None
    resumed: RunRecord | None = None
    beside: tuple[str, RunRecord] | None = None
    gain: float | None = None
    floor: RunRecord | None = None
    exported: Exported | None = None

    @property
    def log_prob_limits(self) -> tuple[list[float], str]:
        """The largest difference of a log-prob that passes at each step, one after a resume included, and why.

        How much rounding costs depends on the step's window, so it is measured step by step.

        Raises:
            NotApplicable: the run that measures the floor ended before its last step.
        """
        if not self.variant.floor or self.variant.lags:
            return [self.variant.log_prob_limit] * (self.steps + 1), self.variant.log_prob_reason
        floors = [] if self.floor is None else self.floor.series(LOG_PROB)
        if len(floors) < self.steps + self.variant.resumes or not_a_number(floors):
            raise NotApplicable(f"the run that measures the floor of rounding logged {len(floors)} steps")
        told = f"limit {FLOORS:g} times what the step costs where {self.variant.log_prob_reason}"
        return [max(FLOORS * floor, self.variant.log_prob_limit) for floor in floors], told


@dataclass(frozen=True)
class Contract:
    """One contract: what it is, and how it is measured.

    ``measure`` raises ``NotApplicable`` where the run has nothing that it could measure.
    """

    check: Check
    measure: Callable[[Training], Measurement]


def contracts(variant: Variant) -> list[Contract]:
    """The contracts of a variant, in the order of their names; the ids name any but the ordinary variant.

    Each is a class in a module of ``contracts/``, or a module with one alone.
    """
    package = importlib.import_module("scaffold.verify.train.contracts")
    names = [entry.name for entry in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    parts: list[Any] = [part for module in modules for part in (module, *vars(module).values())]
    return [
        Contract(_named(part.CHECK, variant), part.measure)
        for part in sorted((part for part in parts if hasattr(part, "CHECK")), key=_place)
        if getattr(part, "applies", lambda _: True)(variant)
    ]


def _place(part: Any) -> str:
    """``logprob`` of a module ``log_prob`` and of a class ``LogProb``."""
    return str(part.__name__.rpartition(".")[2].replace("_", "").lower())


def _named(check: Check, variant: Variant) -> Check:
    if variant.name == VARIANTS[0].name:
        return replace(check, id=f"train-{check.id}")
    return replace(check, id=f"train-{variant.name}-{check.id}", title=f"{check.title} ({variant.title})")


def not_a_number(values: list[float]) -> int:
    """How many values are missing or not finite."""
    return sum(not math.isfinite(value) for value in values)
