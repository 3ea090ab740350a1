"""One window for each rank."""

from __future__ import annotations

import os
from typing import Any

from scaffold.verify.measured import Measured
from scaffold.verify.subject.rollout import RolloutDriver

ID = "window-per-rank"
TITLE = "the SDE window is drawn once for each rank, never for each request, inside its range"
PITFALLS = (15,)
LIMIT = 1.0  # samples of one group with different windows have no common steps: the run dies
RANKS, REQUESTS, STEPS, SIZE = range(8), range(6), 12, 2


def run(subject: Any) -> Measured:
    """Send requests with different seeds to each of eight ranks and see where their windows lie."""
    driver = RolloutDriver(subject)
    most = 0
    problems: list[str] = []
    begins: set[int] = set()
    low, high = 1, len(driver.roll_out(steps=STEPS).sigmas) - 1
    for rank in RANKS:
        os.environ["LOCAL_RANK"] = str(rank)
        seen = set()
        for seed in REQUESTS:
            window: dict[str, Any] = {
                "sde_window_size": SIZE,
                "sde_window_range": [low, high] if seed % 2 else (low, high),
            }
            rolled = driver.roll_out(steps=STEPS, seed=seed, **window)
            if rolled.timesteps is None:
                return Measured("", ["the rollout records no timesteps"])
            first = float(rolled.timesteps.flatten()[0])
            distances = [abs(sigma - first) for sigma in rolled.sigmas]
            seen.add(distances.index(min(distances)))
        most, begins = max(most, len(seen)), begins | seen
    os.environ["LOCAL_RANK"] = "0"
    outside = sorted(begin for begin in begins if not low <= begin <= high - SIZE)
    if outside:
        problems.append(f"a window begins at step {outside[0]}, outside of [{low}, {high})")
    if len(begins) == 1:
        problems.append(f"all {len(RANKS)} ranks draw the same window, at step {begins.pop()}: nothing is drawn")
    return Measured(
        f"{most} window a rank over {len(REQUESTS)} requests, {len(begins)} over {len(RANKS)} ranks",
        problems,
        float(most),
        LIMIT,
        "windows",
    )
