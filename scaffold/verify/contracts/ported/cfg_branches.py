"""The branch without the prompt is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from scaffold.verify.contracts import batch_equals_singles
from scaffold.verify.contracts.cfg_branches import _idle
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.noise_floor import limit_for, noise_floor
from scaffold.verify.subject.subject import PROMPTS


def run(subject: Any) -> Measured:
    """The unconditional velocity must not follow the prompt; both branches must get a gradient.

    Where an edit has several, one of them must follow neither the prompt nor the images, which others may follow. An
    empty prompt may be as long as the prompt: then prompts of one length tell.
    """
    module = subject.new_module()
    problems: list[str] = []
    value, idle = _moved(subject, module, PROMPTS)
    floor = noise_floor(subject, module)
    limit, line = limit_for(floor), f"another prompt moves the unconditional velocity by {value:.1e} relative"
    if value > limit:
        long, (value, _) = value, _moved(subject, module, batch_equals_singles.PROMPTS)
        line = f"{line.partition(' by ')[0]} by {value:.1e} relative, one of another length by {long:.1e}"
    if idle:
        problems.append("both branches predict the same velocity: guidance does nothing")
    problems += _idle(subject)
    return Measured(line, problems, value, limit, "relative", floor)


def _moved(subject: Any, module: Any, prompts: Sequence[Any]) -> tuple[float, bool]:
    """How far the unconditional velocity follows the prompt, and whether it is the conditional one."""
    settings = subject.settings()
    trajectory = subject.trajectory(len(prompts), settings)
    inputs, negative = subject.inputs(module, prompts, settings=settings, trajectory=trajectory)
    if negative is None:
        raise NotDrivableError("the rollout ran no unconditional branch")
    others = [*prompts[1:], prompts[0]]
    with torch.no_grad():
        conditional, unconditional = subject.velocity(module, inputs), subject.velocity(module, negative)
        elsewhere = subject.velocity(module, subject.inputs(module, others, trajectory=trajectory)[1])
    pairs = [(elsewhere, unconditional)]
    if unconditional.ndim > conditional.ndim:
        pairs = list(zip(elsewhere, unconditional, strict=True))
    same = not all(relative(conditional, one) > 1e-5 for _, one in pairs)
    return min(relative(*pair) for pair in pairs), same
