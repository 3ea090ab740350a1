"""Every position of the SDE window keeps latents, timesteps and log-probs together."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.rollout_log_probs import recomputed
from scaffold.verify.formulas import difference
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

ID = "window-alignment"
TITLE = "at every SDE window position latents, timesteps and log-probs belong together"
NOT_RECORDED = "the loop is the pipeline's own: see rollout-window-alignment of level rollout"
PITFALLS = (2, 5, 6, 13)
LIMIT = 1e-6  # as for rollout-log-probs
STEPS = 6


def run(subject: Any) -> Measured:
    """Roll out every window of the schedule, compare with the walk itself and with training's log-probs."""
    driver, module = drive(subject), KnownVelocity(subject)
    count = len(driver.roll_out(steps=STEPS).sigmas)
    worst, windows = 0.0, 0
    wrong: dict[str, list[str]] = {}
    attempts = Attempts()
    for size in range(1, count + 1):
        for begin in range(count - size + 1):
            end, windows = begin + size, windows + 1
            window: dict[str, Any] = {"sde_window_size": size, "sde_window_range": [begin, end]}
            rolled: Any = attempts.of(f"[{begin},{end})", driver.roll_out, steps=STEPS, **window)
            if rolled is None:
                continue
            found = _problems(rolled, begin, end)
            for line in found:
                wrong.setdefault(line, []).append(f"[{begin},{end})")
            if not found:
                again = attempts.of(f"[{begin},{end})", recomputed, subject, module, rolled, "sde")
                worst = worst if again is None else max(worst, difference(again, rolled.log_probs))
    problems = [f"{line} at {', '.join(where)}" for line, where in wrong.items()] + attempts.problems
    return Measured(
        f"{windows} windows of {count} steps, log-probs {worst:.1e} apart", problems, worst, LIMIT, "absolute", 6e-8
    )


def _problems(rolled: Any, begin: int, end: int) -> list[str]:
    """Return the problems of one window, each part checked separately."""
    size = end - begin
    found = []
    kept = 0 if rolled.log_probs is None else rolled.log_probs.numel()
    if kept != size:
        lost = f"loses {size - kept} of its log-probs" if kept < size else f"has {kept - size} log-probs too many"
        found.append(lost if kept else "loses all log-probs")
    elif rolled.log_probs.shape != (1, size):
        found.append(f"has log-probs of shape {tuple(rolled.log_probs.shape)}")
    if rolled.timesteps is None or rolled.timesteps.shape != (1, size):
        found.append(f"has timesteps {None if rolled.timesteps is None else tuple(rolled.timesteps.shape)}")
    else:
        expected = torch.tensor(rolled.times[begin:end], dtype=torch.float64)
        if not difference(rolled.timesteps[0], expected) <= 1e-5 * max(1.0, float(expected.max())):
            shown = [round(value, 4) for value in rolled.timesteps[0].tolist()]
            found.append(f"has the timesteps {shown} of other steps")
    if rolled.latents is None or rolled.latents.shape[:2] != (1, size + 1):
        found.append(f"has latents {None if rolled.latents is None else tuple(rolled.latents.shape[:2])}")
        return found
    walked = torch.stack([sample.reshape(rolled.latents.shape[2:]) for sample in rolled.walked[begin : end + 1]])
    # A scale of the noise that is divided out and multiplied in again rounds; the latents of another step are far off.
    if not difference(rolled.latents[0], walked) <= 1e-6 * float(walked.float().abs().max()) + 1e-7:
        found.append("has latents of other steps, or changed ones")
    return found
