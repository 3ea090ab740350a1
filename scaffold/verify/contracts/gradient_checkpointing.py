"""Recomputing layers changes no gradient."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured

ID = "gradient-checkpointing"
TITLE = "gradient checkpointing happens, without reentry, and changes neither velocity nor gradients"
PITFALLS = (10,)
LIMIT = 1e-6  # the same operations again; only sums of gradients may be added in another order


def run(subject: Any) -> Measured:
    """Compare gradients with checkpointing on and off, in train mode as the engine has it."""
    plain = subject.new_module()
    if not plain._supports_gradient_checkpointing:
        return Measured("", [f"{type(plain).__name__}._supports_gradient_checkpointing is False"])
    recomputing = copy.deepcopy(plain)
    reentrant: list[Any] = []

    def counting(function: Any, *args: Any, **kwargs: Any) -> Any:
        reentrant.append(kwargs.get("use_reentrant"))
        return checkpoint(function, *args, **kwargs)

    # diffusers' own way to call its layers says itself how they are to be called.
    recomputing.enable_gradient_checkpointing(*(() if subject.loaded else (counting,)))
    for module in (plain, recomputing):
        inputs, _ = subject.inputs(subject.train(module))
        with with_attribute(torch.utils.checkpoint, "checkpoint", counting) if subject.loaded else nullcontext():
            subject.velocity(module, inputs).square().mean().backward()
    problems = []
    if not reentrant:
        problems.append("forward does not call its layers through _checkpointed_call: nothing is recomputed")
    if any(flag is not False for flag in reentrant):
        problems.append("use_reentrant is not False")
    worst = 0.0
    for (name, one), other in zip(plain.named_parameters(), recomputing.parameters(), strict=True):
        if (one.grad is None) != (other.grad is None):
            problems.append(f"{name} has a gradient in one of the two only")
        elif one.grad is not None and one.grad.any():
            worst = max(worst, relative(other.grad, one.grad))
    return Measured(
        f"{len(reentrant)} calls recomputed, gradients differ by {worst:.1e} relative",
        problems,
        worst,
        LIMIT,
        "relative",
    )
