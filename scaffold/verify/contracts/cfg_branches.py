"""The branch without the prompt is one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import names_read, step
from scaffold.verify.subject.lora import limit_for, noise_floor
from scaffold.verify.subject.stand_in_velocity import equal
from scaffold.verify.subject.subject import EQUALLY_LONG, PROMPTS

ID = "cfg-branches"
TITLE = "the unconditional branch sees no prompt, differs from the conditional one and learns with it"


def run(subject: Any) -> Measured:
    """The unconditional velocity must not follow the prompt, its length or its padding."""
    module = subject.new_module()
    settings = subject.settings()
    inputs, negative = subject.inputs(module)
    if negative is None:  # guidance is off by default
        with suppress(NotDrivableError):
            settings = subject.settings(**{names_read(subject)["text_scale"]: 3.0})
            inputs, negative = subject.inputs(module, settings=settings)
    if negative is None:
        raise NotDrivableError("prepare_model_inputs builds no unconditional branch")
    other = [(*(token + 20 for token in prompt), 3, 4) for prompt in PROMPTS]
    with torch.no_grad():
        conditional = subject.velocity(module, inputs)
        unconditional = subject.velocity(module, negative)
        elsewhere = subject.velocity(module, subject.inputs(module, other, settings=settings)[1])
    value = relative(elsewhere, unconditional)
    problems = []
    if not relative(conditional, unconditional) > 1e-5:
        problems.append("both branches predict the same velocity: guidance does nothing")
    problems += _idle(subject, settings)
    floor = noise_floor(subject, module)
    limit = limit_for(floor)
    called, names = _called(subject, module, settings, other)
    if called > max(limit, value):
        problems.append(f"a step gives the call without the prompt {' and '.join(names)} of the one with it")
    told = f"another prompt moves the unconditional velocity by {max(value, called):.1e} relative"
    return Measured(told, problems, max(value, called), limit, "relative", floor)


def _called(subject: Any, module: Any, settings: Any, other: Any) -> tuple[float, list[str]]:
    """How far another prompt moves what a step calls without the prompt, and through which arguments.

    0 where a step makes no such call, which cfg-formula reports.
    """
    calls = [step(subject, settings, prompts=prompts)[0].given for prompts in (PROMPTS, other)]
    if not all(calls):
        return 0.0, []
    given, elsewhere = (found[-1] for found in calls)
    changed = [name for name in {**given, **elsewhere} if not equal(given.get(name), elsewhere.get(name))]
    try:
        with torch.no_grad():
            one, two = subject.velocity(module, given), subject.velocity(module, elsewhere)
    except RuntimeError:  # what belongs to another prompt need not fit the module's other arguments
        return float("inf"), changed
    return (relative(two, one) if one.shape == two.shape else float("inf")), changed


def _idle(subject: Any, settings: Any) -> list[str]:
    """Return a branch without a gradient from the log-prob although its velocity is part of the guided one."""
    module, _, _, result = step(subject, settings)
    if not module.unconditional or not result[0].requires_grad:
        return []  # guidance is off, or nothing has a gradient, which lora-learns reports
    result[0].sum().backward()
    branches = {"conditional": module.anchor, "unconditional": module.without}
    idle = [name for name, parameter in branches.items() if parameter.grad is None or not parameter.grad.any()]
    return [f"the {name} branch gets no gradient, although the log-prob follows it" for name in idle]


def run_recorded(subject: Any) -> Measured:
    """The unconditional velocity must not follow the prompt; both branches must get a gradient.

    If an edit has several, one of them must follow neither the prompt nor the images; the others may. The replacement
    of a prompt may have its length: zeros, or an empty prompt in a sequence with the image. Prompts of equal length are
    then compared.
    """
    module = subject.new_module()
    settings = subject.settings()
    carries = getattr(subject, "carries", False)
    as_long = subject.spec.get("prompt", {}).get("negative") == "zeros" or subject.spec.get("port", {}).get("own")
    prompts = EQUALLY_LONG if as_long else PROMPTS
    trajectory = subject.trajectory(len(prompts), settings)
    inputs, negative = subject.inputs(module, prompts, settings=settings, trajectory=trajectory)
    if carries:
        return _carried(subject, module, prompts, trajectory, inputs["calls"])
    if negative is None:
        raise NotDrivableError("the rollout ran no unconditional branch")
    others = [*prompts[1:], prompts[0]]
    with torch.no_grad():
        conditional, unconditional = subject.velocity(module, inputs), subject.velocity(module, negative)
        elsewhere = subject.velocity(module, subject.inputs(module, others, trajectory=trajectory)[1])
    pairs = [(elsewhere, unconditional)]
    if unconditional.ndim > conditional.ndim:
        pairs = list(zip(elsewhere, unconditional, strict=True))
    value = min(relative(*pair) for pair in pairs)
    problems = []
    if not all(relative(conditional, one) > 1e-5 for _, one in pairs):
        problems.append("both branches predict the same velocity: guidance does nothing")
    problems += _idle(subject, subject.settings())
    floor = noise_floor(subject, module)
    line = f"another prompt moves the unconditional velocity by {value:.1e} relative"
    return Measured(line, problems, value, limit_for(floor), "relative", floor)


def _carried(subject: Any, module: Any, prompts: Any, trajectory: Any, calls: Any) -> Measured:
    """One of a sample's predictions must not follow the prompt; those that the velocity follows get gradients."""
    others = subject.inputs(module, [*prompts[1:], prompts[0]], trajectory=trajectory)[0]["calls"]
    with torch.no_grad():
        found, elsewhere = (module(calls=given)[0].float() for given in (calls, others))
    count = len(found) // len(prompts)
    if count < 2 or len(elsewhere) != len(found):
        raise NotDrivableError("the rollout ran no unconditional branch, or not for every sample")
    branches, moved = (rows.view(len(prompts), count, *rows.shape[1:]).unbind(1) for rows in (found, elsewhere))
    changes = [relative(*pair) for pair in zip(moved, branches, strict=True)]
    value = min(changes)
    still = branches[changes.index(value)]
    problems = []
    if not all(relative(branch, still) > 1e-5 for branch in branches if branch is not still):
        problems.append("both branches predict the same: guidance does nothing")
    predictions = found.clone().requires_grad_()
    velocity = calls.velocity(predictions)
    velocity.square().sum().backward()
    gradients = torch.zeros_like(found) if predictions.grad is None else predictions.grad
    for place in range(len(found)):
        changed = found.clone()
        changed[place] += 1 + found[place].abs()
        # Two equal scales take a branch out: what the velocity does not follow needs no gradient.
        follows = relative(calls.velocity(changed), velocity.detach()) > 1e-5
        if follows and not bool(gradients[place].abs().max() > 0):
            problems.append("a branch gets no gradient, although the velocity follows it")
            break
    floor = noise_floor(subject, module)
    line = f"another prompt moves the prediction of the unconditional branch by {value:.1e} relative"
    return Measured(line, problems, value, limit_for(floor), "relative", floor)
