"""Which branches run does not hang on the samples."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured
from scaffold.verify.subject.stand_in_velocity import TwoBranches


def run(subject: Any) -> Measured:
    """Count, for each step, the calls that each recorded sample leads to: ranks have different ones."""
    samples, settings = subject.recording["samples"], subject.settings()
    problems = []
    found: set[int] = set()
    for step in range(samples[0]["timesteps"].shape[0]):
        counts = {_calls(subject, settings, sample, step) for sample in samples}
        found |= counts
        if len(counts) > 1:
            told = " and ".join(map(str, sorted(counts)))
            problems.append(f"step {step} makes {told} calls for different samples: ranks would wait for ever")
    shown = " or ".join(map(str, sorted(found)))
    return Measured(f"{shown} calls a step, the same for all {len(samples)} samples", problems)


def _calls(subject: Any, settings: Any, sample: Any, step: int) -> int:
    latents, timesteps = subject.trajectory_of([sample])
    inputs, negative = subject.inputs_of(None, [sample], step=step)
    module = TwoBranches(subject, negative)
    recorded = {"all_latents": latents, "all_timesteps": timesteps}
    subject.training.forward_and_sample_previous_step(
        module, subject.scheduler(settings), settings, inputs, negative, recorded, step
    )
    return len(module.conditional) + len(module.unconditional)
