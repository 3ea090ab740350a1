"""Compares samples in a batch with the same samples alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.noise_floor import LARGEST_LIMIT, limit_for, noise_floor

# Guidance amplifies the error of both branches: u + s (c - u) with s = 5 by a factor of nine.
GUIDED = 10


@dataclass
class _Worst:
    value: float = 0.0
    told: str = ""


def measure_alone(subject: Any, batches: Sequence[Sequence[Sequence[int]]], steps: Sequence[int]) -> Measured:
    """Compare velocity, mean and log-prob of each sample of each batch with those of the sample by itself.

    Samples differ in everything that they may: prompt, latents, size of the latents, noise level.

    Args:
        subject: the package.
        batches: prompts of each batch.
        steps: positions in the trajectory.
    """
    module, settings = subject.new_module(), subject.settings()
    worst = {name: _Worst() for name in ("velocity", "mean of the step", "log-prob")}
    attempts = Attempts()
    for prompts in batches:
        longest = max(map(len, prompts))
        for step in steps:
            case = f"a batch of {len(prompts)}"
            together = attempts.of(case, _one, subject, module, settings, prompts, 1, step)
            for i, prompt in enumerate(prompts if together is not None else ()):
                alone = _one(subject, module, settings, [prompt], 1 + i, step)
                for entry, batch, single in zip(worst.values(), together or (), alone, strict=True):
                    difference = relative(batch[i], single[0])
                    if difference > entry.value:
                        told = f"a prompt of {len(prompt)} tokens padded to {longest}, in {case}"
                        entry.value, entry.told = difference, f"({told})"
    floor = noise_floor(subject, module)
    value, limit = worst["velocity"].value, limit_for(floor)
    limits = {name: limit if name == "velocity" else min(GUIDED * limit, LARGEST_LIMIT) for name in worst}
    wrong = {name: entry for name, entry in worst.items() if entry.value > limits[name]}
    told = ", ".join(f"{name} differs by {entry.value:.1e} relative {entry.told}" for name, entry in wrong.items())
    fine = ", ".join(f"{name} {entry.value:.1e}" for name, entry in worst.items())
    rounding = f"rounding alone gives {floor:.1e}"
    problems = [f"{told} from that of the sample alone; {rounding}"] if wrong else []
    problems += attempts.problems
    return Measured(f"{fine} from the sample alone; {rounding}", problems, value, limit, "relative", floor)


def _one(subject: Any, module: Any, settings: Any, prompts: Any, seed: int, step: int) -> tuple[torch.Tensor, ...]:
    """Velocity with the prompt, mean and log-prob of one batch."""
    trajectory = subject.unlike(len(prompts), settings, seed)
    with torch.no_grad():
        inputs, _ = subject.inputs(module, prompts, step=step, settings=settings, trajectory=trajectory)
        velocity = subject.velocity(module, inputs)
        log_prob, mean, *_ = subject.log_prob(module, prompts, settings, step=step, trajectory=trajectory)
    return velocity, mean, log_prob
