"""``forward`` returns one finite velocity for each latent."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.discovery import require_own_module
from scaffold.verify.subject.stated_ids import BEYOND

ID = "forward"
TITLE = "forward returns a 1-tuple of finite velocities, shaped like the latents, for both branches"
PITFALLS = (39,)


def run(subject: Any) -> Measured:
    """Call the module with both branches of a ragged batch; a module that never runs fails here, and only here.

    A missing library, or inputs that nobody has declared, are not a fault of the package.
    """
    require_own_module(subject.training)
    try:
        module = subject.new_module()
        shape = subject.geometry.shape
        pair = subject.inputs(module)
    except NotDrivableError as reason:
        if BEYOND in str(reason) or not (subject.spec or subject.table.place):
            raise
        return Measured("", [str(reason)])
    problems = []
    for branch, inputs in zip(("conditional", "unconditional"), pair, strict=True):
        if inputs is None:
            continue
        with torch.no_grad():
            output = module(**inputs)
        if not isinstance(output, tuple) or len(output) != 1:
            problems.append(f"{branch}: forward returns {_kind(output)}, the engine takes the first of a 1-tuple")
        velocity = output if isinstance(output, torch.Tensor) else output[0]
        if velocity.shape[1:] != shape:
            problems.append(f"{branch}: the velocity has shape {tuple(velocity.shape)} for latents (B, {shape})")
        if not velocity.isfinite().all():
            problems.append(f"{branch}: the velocity holds numbers that are not finite")
        elif not velocity.abs().max() > 0:
            problems.append(f"{branch}: the velocity is zero everywhere")
    return Measured(f"(velocity,) with velocity (B, {', '.join(map(str, shape))})", problems)


def _kind(output: Any) -> str:
    return f"a tuple of {len(output)}" if isinstance(output, tuple) else type(output).__name__


def run_recorded(subject: Any) -> Measured:
    """As for every package; where nothing could be recorded there is nothing to give to it."""
    subject.recording  # noqa: B018
    return run(subject)
