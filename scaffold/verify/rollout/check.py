"""A scenario's declarations and measurements; without heavy imports, since both processes import it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# The largest differences that pass, in float32. docs/rollout.md says what was measured and why these.
LOG_PROB = 1e-6
VELOCITY = 1e-5
# A deliberate mistake must change log-probs by at least thirty times the limit: one token of many moves them little.
CONTROL = 1 / 30
# Limit of half-precision differences, relative to the floor measured in the same run.
HALF_PRECISION = 1.5


class NotApplicable(Exception):
    """The package has nothing that this scenario could measure; the text says why."""


@dataclass(frozen=True)
class Check:
    """One contract of a scenario.

    Attributes:
        id: stable name, begins with ``rollout-``.
        title: the contract as a sentence.
        limit: the largest value that passes; None where the scenario measures it.
        unit: what the value counts.
        pitfalls: numbers in the list of known bugs that a failure may mean.
    """

    id: str
    title: str
    limit: float | None
    unit: str | None
    pitfalls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What was found for one check; ``limit`` only where the check leaves it open."""

    check: str
    value: float | None
    reason: str
    floor: float | None = None
    limit: float | None = None
    series: Mapping[str, list[float]] | None = None
    skipped: bool = False
    seconds: float = 0.0


def equality(name: str, title: str, pitfalls: tuple[int, ...] = ()) -> tuple[Check, Check]:
    """Return the two checks of a comparison in float32: log-probs, and the velocities behind them."""
    return (
        Check(
            f"rollout-{name}-log-prob",
            f"{title}: training's log-probs are the rollout's",
            LOG_PROB,
            "absolute",
            pitfalls,
        ),
        Check(
            f"rollout-{name}-velocity",
            f"{title}: training's velocities are the rollout's",
            VELOCITY,
            "relative",
            pitfalls,
        ),
    )


def control(name: str, title: str, pitfalls: tuple[int, ...] = ()) -> Check:
    """Return the check that a deliberate mistake is seen; its value is the log-prob limit over what was seen."""
    return Check(
        f"rollout-control-{name}", f"A deliberate mistake is seen: {title}", CONTROL, "limit per effect", pitfalls
    )


def control_measurement(check: Check, difference: float) -> Measurement:
    """Judge a control by the largest change of a log-prob, in nats, that the mistake made."""
    value = LOG_PROB / difference if difference > 0 else math.inf
    times = difference / LOG_PROB
    return Measurement(
        check.id, value, f"log-probs move by {difference:.1e}, {times:,.0f} times what passes; at least 30 are needed"
    )
