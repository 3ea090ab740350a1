"""Noise falls into the SDE window and nowhere else."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.rollout import RolloutDriver

ID = "window-noise"
TITLE = "a step outside of the SDE window is the plain integration, one inside adds noise"
NOT_RECORDED = "the loop is the pipeline's own: see rollout-window-noise of level rollout"
PITFALLS = (2, 15)
# Relative to the largest latent: float32 gives 1e-7; a step with noise, of which training hears nothing, 1e-1.
LIMIT = 1e-5
LEAST_NOISE = 1e-3
STEPS, SIZE = 8, 2
KINDS = ("sde", "cps", "dance_sde")


def run(subject: Any) -> Measured:
    """Follow the loop through windows at its begin, in its middle and at its end, with each SDE type."""
    driver = drive(subject)
    count = len(driver.roll_out(steps=STEPS).sigmas)
    worst, outside = 0.0, 0
    wrong: dict[str, list[str]] = {}
    attempts = Attempts()
    for kind in KINDS:
        for begin in (0, count // 2 - 1, count - SIZE):
            window: dict[str, Any] = {"sde_window_size": SIZE, "sde_window_range": [begin, begin + SIZE]}
            rolled: Any = attempts.of(kind, driver.roll_out, steps=STEPS, sde_type=kind, **window)
            if rolled is None:
                break
            for step, apart in enumerate(_from_plain(driver, rolled)):
                inside = begin <= step < begin + SIZE
                last = step == count - 1  # its noise may be zero: cps ends at noise level 0
                if not inside:
                    worst, outside = max(worst, apart), outside + 1
                if not inside and not apart <= LIMIT:
                    wrong.setdefault("outside of the window is not the plain integration", []).append(f"{kind} {step}")
                elif inside and not last and not apart > LEAST_NOISE:
                    wrong.setdefault("inside of the window adds no noise", []).append(f"{kind} {step}")
    problems = [f"a step {line} ({_first(where)})" for line, where in wrong.items()] + attempts.problems
    line = f"{outside} steps outside of windows of {SIZE}: {worst:.1e} from the plain integration"
    return Measured(line, problems, worst, LIMIT, "relative", 1e-7)


def _from_plain(driver: RolloutDriver, rolled: Any) -> list[float]:
    """Return the distance of each step's sample from the noise-free step."""
    levels = pairwise([*rolled.sigmas, 0.0])
    return [
        relative(after.double(), before.double() + (following - now) * driver.velocity(before, now).double())
        for (before, after), (now, following) in zip(pairwise(rolled.walked), levels, strict=True)
    ]


def _first(where: list[str]) -> str:
    return ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
