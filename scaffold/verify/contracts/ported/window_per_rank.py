"""One window for each rank."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts.window_per_rank import LIMIT
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """Look at where the windows of the real rollout began, by rank and request."""
    windows = subject.recording["windows"]
    begins = {round(found[0], 6) for found in windows}
    most = max(len({round(level, 6) for level in found}) for found in windows)
    problems = [] if len(begins) > 1 else [f"all {len(windows)} ranks draw the same window: nothing is drawn"]
    line = f"{most} window a rank over {len(windows[0])} requests, {len(begins)} over {len(windows)} ranks"
    return Measured(line, problems, float(most), LIMIT, "windows")
