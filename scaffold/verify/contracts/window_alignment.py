"""Every position of the SDE window keeps latents, timesteps and log-probs together."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.rollout_log_probs import recomputed
from scaffold.verify.measured import Measured
from scaffold.verify.subject.rollout import RolloutDriver
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

ID = "window-alignment"
TITLE = "at every SDE window position latents, timesteps and log-probs belong together"
PITFALLS = (2, 5, 6, 13)
LIMIT = 1e-6  # as for rollout-log-probs
STEPS = 6


def run(subject: Any) -> Measured:
    """Roll out every window of the schedule, compare with the walk itself and with training's log-probs."""
    driver, module = RolloutDriver(subject), KnownVelocity(subject)
    count = len(driver.roll_out(steps=STEPS).sigmas)
    worst, windows = 0.0, 0
    wrong: dict[str, list[str]] = {}
    for size in range(1, count + 1):
        for begin in range(count - size + 1):
            end, windows = begin + size, windows + 1
            window: dict[str, Any] = {"sde_window_size": size, "sde_window_range": [begin, end]}
            rolled: Any = driver.roll_out(steps=STEPS, **window)
            found = _problem(rolled, begin, end)
            if found is not None:
                wrong.setdefault(found, []).append(f"[{begin},{end})")
            else:
                difference = (recomputed(subject, module, rolled, "sde") - rolled.log_probs).abs().max().item()
                worst = max(worst, difference) if difference == difference else difference
    problems = [f"{line} at {', '.join(where)}" for line, where in wrong.items()]
    return Measured(
        f"{windows} windows of {count} steps, log-probs {worst:.1e} apart", problems, worst, LIMIT, "absolute", 6e-8
    )


def _problem(rolled: Any, begin: int, end: int) -> str | None:
    """What is wrong with one window; None where nothing is."""
    size = end - begin
    if rolled.latents is None or rolled.timesteps is None:
        return "returns no trajectory"
    kept = 0 if rolled.log_probs is None else rolled.log_probs.numel()
    if kept != size:
        lost = f"loses {size - kept} of its log-probs" if kept < size else f"has {kept - size} log-probs too many"
        return lost if kept else "loses all log-probs"
    shapes = (rolled.log_probs.shape, rolled.timesteps.shape, rolled.latents.shape[:2])
    if shapes != ((1, size), (1, size), (1, size + 1)):
        return f"has log-probs {tuple(shapes[0])}, timesteps {tuple(shapes[1])}, latents {tuple(shapes[2])}, …"
    if (rolled.timesteps[0].double() - torch.tensor(rolled.sigmas[begin:end], dtype=torch.float64)).abs().max() > 1e-5:
        return f"has the timesteps {[round(value, 4) for value in rolled.timesteps[0].tolist()]} of other steps"
    walked = torch.stack([sample.reshape(rolled.latents.shape[2:]) for sample in rolled.walked[begin : end + 1]])
    # A scale of the noise that is divided out and multiplied in again rounds; the latents of another step are far off.
    if not torch.allclose(rolled.latents[0], walked.float(), rtol=1e-6, atol=1e-7):
        return "has latents of other steps, or changed ones"
    return None
