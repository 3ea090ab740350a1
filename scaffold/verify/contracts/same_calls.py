"""The same branches run for every sample."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import guidance_of
from scaffold.verify.subject.stand_in_velocity import TwoBranches
from scaffold.verify.subject.subject import PROMPTS

ID = "same-calls"
TITLE = "a step calls the module equally often whatever its samples are: sharded ranks wait for each other"
PITFALLS = (42,)
STEP = 1
SEEDS = (0, 1, 2, 3)  # the first number that they draw is 0.50, 0.76, 0.61, 0.004


def run(subject: Any) -> Measured:
    """Count calls of one step for samples inside and outside of the interval of guidance, and under several seeds."""
    counts: dict[int, str] = {}
    for name, settings, timesteps in _cases(subject):
        for seed in SEEDS:
            torch.manual_seed(seed)
            counts.setdefault(_calls(subject, settings, timesteps), name)
    told = " and ".join(f"{count} calls for {name}" for count, name in counts.items())
    problems = [f"one step makes {told}: ranks with other samples would wait for ever"] if len(counts) > 1 else []
    return Measured(f"{min(counts)} calls a step, inside and outside of the interval of guidance", problems)


def _cases(subject: Any) -> list[tuple[str, Any, Any]]:
    """Yield a description, settings and noise levels ``(B, T)``; all cases share the settings."""
    found = guidance_of(subject)
    settings = subject.settings()
    levels = subject.scheduler(settings).timesteps.clone()
    if found is not None and "interval" in found.names:
        sigmas = subject.scheduler(settings).sigmas
        middle = float(sigmas[STEP + 1] + sigmas[STEP]) / 2
        settings = subject.settings(**found.settings(interval=(0.0, middle)))
    # At the same step of the trajectory, samples of another window stand at other noise levels.
    high, low = levels.repeat(len(PROMPTS), 1), levels.roll(-1).repeat(len(PROMPTS), 1)
    mixed = torch.stack([*high[:1], *low[1:]])
    return [
        ("samples at a high noise level", settings, high),
        ("samples at a low one", settings, low),
        ("samples of both", settings, mixed),
    ]


def _calls(subject: Any, settings: Any, timesteps: Any) -> int:
    trajectory = subject.latents(len(PROMPTS), timesteps.shape[1] + 1), timesteps
    inputs = subject.inputs(TwoBranches(subject, None), settings=settings, step=STEP, trajectory=trajectory)
    module = TwoBranches(subject, inputs[1], inputs[0])
    subject.scored(module, settings, inputs, trajectory, STEP)
    return len(module.conditional) + len(module.unconditional)


def run_recorded(subject: Any) -> Measured:
    """Count the calls of each recorded sample at each step: ranks have different samples."""
    if getattr(subject, "carries", False):
        raise NotDrivableError("training evens the calls of its ranks out: samples may differ in their guidance")
    samples, settings = subject.recording["samples"], subject.settings()
    problems = []
    found: set[int] = set()
    for step in range(samples[0]["timesteps"].shape[0]):
        counts = {_recorded_calls(subject, settings, sample, step) for sample in samples}
        found |= counts
        if len(counts) > 1:
            told = " and ".join(map(str, sorted(counts)))
            problems.append(f"step {step} makes {told} calls for different samples: ranks would wait for ever")
    shown = " or ".join(map(str, sorted(found)))
    return Measured(f"{shown} calls a step, the same for all {len(samples)} samples", problems)


def _recorded_calls(subject: Any, settings: Any, sample: Any, step: int) -> int:
    inputs = subject.inputs_of(None, [sample], step=step)
    module = TwoBranches(subject, inputs[1], inputs[0])
    subject.scored(module, settings, inputs, subject.trajectory_of([sample]), step)
    return len(module.conditional) + len(module.unconditional)
