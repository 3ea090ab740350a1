"""Training's noise levels against those that the real pipeline walked."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured


def measure_recorded_schedules(subject: Any, limit: float) -> Measured:
    """Compare them for every recorded number of steps, and look every recorded timestep up in training's schedule."""
    worst, where, problems = 0.0, "", []
    for steps, levels in subject.recording["schedules"].items():
        scheduler = subject.scheduler(subject.settings(steps=steps))
        found, walked = scheduler.timesteps.double(), torch.tensor(levels, dtype=torch.float64)
        if found.shape != walked.shape:
            problems.append(f"{steps} steps: training has {len(found)} noise levels, the pipeline walks {len(walked)}")
            continue
        difference = float((found - walked).abs().max())
        if difference > worst or difference != difference:
            worst, where = difference, f" (at {steps} steps)"
        problems += _looked_up(scheduler, walked, steps)
    counts = ", ".join(map(str, subject.recording["schedules"]))
    line = f"the pipeline's schedules of {counts} steps: {worst:.1e} apart{where}"
    return Measured(line, problems, worst, limit, "absolute", 6e-8)


def _looked_up(scheduler: Any, levels: torch.Tensor, steps: int) -> list[str]:
    for i, level in enumerate(levels.float()):
        try:
            index = int(scheduler.index_for_timestep(level))
        except Exception as error:
            return [f"{steps} steps: training cannot look step {i} up: {type(error).__name__}"]
        if index != i:
            return [f"{steps} steps: the rollout's step {i} is training's step {index}"]
    return []
