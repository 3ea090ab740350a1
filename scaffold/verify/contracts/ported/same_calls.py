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
    inputs = subject.inputs_of(None, [sample], step=step)
    module = TwoBranches(subject, inputs[1])
    subject.scored(module, settings, inputs, subject.trajectory_of([sample]), step)
    return len(module.conditional) + len(module.unconditional)
