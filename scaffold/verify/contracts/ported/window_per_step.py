"""One window for each training step, whatever the request and the rank."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts.window_per_step import LIMIT
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """Look at where the windows of the real rollout began, by training step; each rank sent a request of its own."""
    windows = {step: {round(level, 6) for level in found} for step, found in subject.recording["windows"].items()}
    most, begins = max(map(len, windows.values())), set().union(*windows.values())
    problems = []
    if len({frozenset(found) for found in windows.values()}) == 1:
        problems.append(f"all {len(windows)} training steps have the same windows: the rest is never trained")
    ranks = len(next(iter(subject.recording["windows"].values())))
    line = f"{most} window a training step over {ranks} ranks, {len(begins)} over {len(windows)} training steps"
    return Measured(line, problems, float(most), LIMIT, "windows")
