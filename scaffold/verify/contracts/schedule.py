"""Both sides walk one schedule, which is upstream's and the formula's, on each diffusers that a release allows."""

from __future__ import annotations

from functools import partial
from typing import Any

import diffusers
import torch

from scaffold.verify.formulas import difference
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.rollout import RolloutDriver, drive
from scaffold.verify.subject.stand_in_velocity import KnownVelocity
from scaffold.verify.subject.subject import PROMPTS

# Float32 sigmas in (0, 1]: 6e-8 is one rounding. One step off is 1e-2 and more at 60 steps.
LIMIT = 1e-6
STEPS = range(1, 61)


def measure_schedule(subject: Any, release: str) -> Measured:
    """Compare training's sigmas and timesteps, the rollout's, and upstream's formula, for 1 to 60 steps.

    Every timestep of the rollout is then looked up in training's schedule, as the trainer does.

    Args:
        subject: the package.
        release: diffusers that must be running.
    """
    if diffusers.__version__ != release:
        raise NotDrivableError(f"diffusers {diffusers.__version__} is running, not {release}")
    if hasattr(subject, "recording"):
        return _measure_recorded(subject)
    driver = drive(subject)
    problems: list[str] = []
    worst, where = 0.0, ""
    differences = []
    for steps in STEPS:
        settings = subject.settings(steps=steps)
        scheduler = subject.scheduler(settings)
        try:
            rolled = driver.roll_out(steps=steps)
        except Exception as error:
            line = " ".join(str(error).split())[:200]
            problems.append(f"{steps} steps: the rollout raises {type(error).__name__}: {line}")
            continue
        if steps == 1 and not rolled.sigmas:
            continue  # the engine's warm-up: upstream takes no step, and nothing has raised
        # Upstream's actual schedule: an adapter may request another number of steps on purpose.
        points = len(rolled.sigmas) + 1
        expected = torch.tensor(driver.exact_levels(points), dtype=torch.float64)
        sides = {
            "training's sigmas": (scheduler.sigmas, expected),
            "training's timesteps": (scheduler.timesteps, expected[:-1]),
            "the rollout's timesteps": (None if rolled.timesteps is None else rolled.timesteps[0], expected[:-1]),
        }
        far = 0.0
        for name, (found, wanted) in sides.items():
            if found is None or found.shape != wanted.shape:
                count = "none" if found is None else str(len(found))
                problems.append(f"{steps} steps: {name} are {count}, upstream walks {len(wanted)}")
                continue
            apart = difference(found, wanted)
            if apart > worst:
                worst, where = apart, f" ({name} at {steps} steps)"
            far = max(far, apart)
        differences.append(far)
        if rolled.timesteps is not None:
            problems += _looked_up(scheduler, rolled.timesteps[0], steps)
    problems += _one_step(subject, driver)
    line = f"60 step counts on diffusers {release}: {worst:.1e} apart{where}"
    return Measured(line, problems, worst, LIMIT, "absolute", 6e-8, {"difference for 2 to 60 steps": differences})


def _measure_recorded(subject: Any) -> Measured:
    """Compare training's noise levels with those that the real pipeline walked, for every recorded number of steps."""
    if getattr(subject, "carries", False):
        raise NotDrivableError("noise levels are the pipeline's own, which the rollout carries")
    worst, where, problems = 0.0, "", []
    for steps, levels in subject.recording["schedules"].items():
        scheduler = subject.scheduler(subject.settings(steps=steps))
        found, walked = scheduler.timesteps.double(), torch.tensor(levels, dtype=torch.float64)
        if found.shape != walked.shape:
            problems.append(f"{steps} steps: training has {len(found)} noise levels, the pipeline walks {len(walked)}")
            continue
        apart = difference(found, walked) / max(1.0, float(walked.abs().max()))  # they may be thousandths
        if apart > worst:
            worst, where = apart, f" (at {steps} steps)"
        problems += _looked_up(scheduler, walked.float(), steps)
    counts = ", ".join(map(str, subject.recording["schedules"]))
    line = f"the pipeline's schedules of {counts} steps: {worst:.1e} apart{where}"
    return Measured(line, problems, worst, LIMIT, "absolute", 6e-8)


def _looked_up(scheduler: Any, timesteps: torch.Tensor, steps: int) -> list[str]:
    """Return a problem with the first timestep of ``(T,)`` that training does not find at its own index, if any."""
    for i, timestep in enumerate(timesteps):
        try:
            index = int(scheduler.index_for_timestep(timestep))
        except Exception as error:
            return [f"{steps} steps: training cannot look step {i} up: {type(error).__name__}"]
        if index != i:
            return [f"{steps} steps: the rollout's step {i} is training's step {index}"]
    return []


def _one_step(subject: Any, driver: RolloutDriver) -> list[str]:
    """The training adapter itself finds a recorded step."""
    settings = subject.settings()
    rolled = driver.roll_out()
    if rolled.timesteps is None:
        return ["the rollout records no timesteps"]
    timesteps = rolled.timesteps.repeat(len(PROMPTS), 1)
    trajectory = (subject.latents(len(PROMPTS), timesteps.shape[1] + 1), timesteps)
    try:
        subject.log_prob(KnownVelocity(subject), PROMPTS, settings, step=1, trajectory=trajectory)
    except Exception as error:
        return [f"training cannot score a recorded step: {type(error).__name__}: {' '.join(str(error).split())[:200]}"]
    return []


class Diffusers38:
    """The oldest."""

    ID = "schedule-diffusers-0.38.0"
    TITLE = "both adapters and upstream walk one schedule for 1 to 60 steps, on diffusers 0.38.0"
    ROLLED = True
    PITFALLS = (5, 30, 33, 44)
    DIFFUSERS = "0.38.0"
    run = partial(measure_schedule, release=DIFFUSERS)


class Diffusers40:
    """The newest, which takes no timesteps beside sigmas."""

    ID = "schedule-diffusers-0.40.0"
    TITLE = "both adapters and upstream walk one schedule for 1 to 60 steps, on diffusers 0.40.0"
    ROLLED = True
    PITFALLS = (5, 30, 33, 44)
    DIFFUSERS = "0.40.0"
    run = partial(measure_schedule, release=DIFFUSERS)
