"""A sample in a batch is computed as it is alone, whatever stands beside it and pads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from scaffold.verify.formulas import relative, worst_relative
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.subject.lora import LARGEST_LIMIT, limit_for, noise_floor
from scaffold.verify.subject.subject import EQUALLY_LONG, PROMPTS

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


class EquallyLong:
    """Prompts of one length: nothing is padded."""

    ID = "batch-equals-singles"
    TITLE = "in a batch of equally long prompts each sample gets the velocity, mean and log-prob it gets alone"
    PITFALLS = (14,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare batches of two, three and four with their samples one by one, at other noise levels and latents."""
        prompts = EQUALLY_LONG
        return measure_alone(subject, [prompts, prompts[:2], (*prompts, prompts[0])], (0, 2))


class Ragged:
    """Prompts of several lengths."""

    ID = "padding-invariance"
    TITLE = "in a batch of ragged prompts each sample gets the velocity, mean and log-prob it gets alone"
    PITFALLS = (1, 8, 9, 14)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare a batch of prompts of 3, 7 and 5 tokens with its samples one by one, in several orders.

        Two more things are looked at apart, because a velocity that follows the length of the padding, as most wrong
        ones do, would hide them: what stands in the padding, and what the longer prompts beside say.
        """
        if subject.needs_embeddings and not subject.reads_masks:
            raise NotDrivableError(
                "training reads no mask of the embeddings: right where the rollout gives every prompt the same length"
            )
        found = measure_alone(subject, (PROMPTS, PROMPTS[::-1], PROMPTS[1:] + PROMPTS[:1]), (0,))
        attempts, limit = Attempts(), found.limit or 0.0
        aside = {
            "the ids that fill the padding": attempts.of("other padding", _contents, subject),
            "what a longer prompt beside it says": attempts.of("other neighbours", _neighbours, subject),
        }
        problems = [
            f"{name} changes the velocity by {value:.1e} relative"
            for name, value in aside.items()
            if (value or 0) > limit
        ]
        return replace(found, problems=[*found.problems, *problems, *attempts.problems])


def _contents(subject: Any) -> float:
    """Change of the velocity with the ids at places that a mask excludes; 0 where no argument is such a pair."""
    module = subject.new_module()
    inputs, _ = subject.inputs(module)
    masks = [value for value in inputs.values() if _is_mask(value)]
    other = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or value.is_floating_point() or _is_mask(value):
            continue
        for mask in masks:
            if mask.shape == value.shape:
                other[name] = torch.where(mask.bool(), value, value.roll(1, dims=0).flip(-1).clamp_min(1))
    with torch.no_grad():
        return worst_relative(subject.velocity(module, other), subject.velocity(module, inputs))


def _is_mask(value: Any) -> bool:
    """Whether an argument is a mask of zeros and ones with both in it."""
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return False
    return bool(((value == 0) | (value == 1)).all()) and 0 < int(value.count_nonzero()) < value.numel()


def _neighbours(subject: Any) -> float:
    """Change of the first sample's velocity with the tokens of those beside it, whose lengths stay."""
    module = subject.new_module()
    first, *others = PROMPTS
    changed = [first, *(tuple(token + 1 for token in prompt) for prompt in others)]
    with torch.no_grad():
        one, other = (subject.velocity(module, subject.inputs(module, prompts)[0]) for prompts in (PROMPTS, changed))
    return worst_relative(other[:1], one[:1])
