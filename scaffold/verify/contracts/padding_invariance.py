"""Padding of the prompts changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from scaffold.verify.formulas import worst_relative
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.subject.alone import measure_alone
from scaffold.verify.subject.subject import PROMPTS

ID = "padding-invariance"
TITLE = "in a batch of ragged prompts each sample gets the velocity, mean and log-prob it gets alone"
PITFALLS = (1, 8, 9, 14)


def run(subject: Any) -> Measured:
    """Compare a batch of prompts of 3, 7 and 5 tokens with its samples one by one, in several orders.

    Two more things are looked at apart, because a velocity that follows the length of the padding, as most wrong ones
    do, would hide them: what stands in the padding, and what the longer prompts beside say.
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
        f"{name} changes the velocity by {value:.1e} relative" for name, value in aside.items() if (value or 0) > limit
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
