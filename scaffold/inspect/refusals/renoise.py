"""Distilled few-step loops: each turn predicts the clean sample and puts new noise on it."""

from __future__ import annotations

from scaffold.inspect.guidance import plain_parts
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.values import Call, Const, Obj
from scaffold.inspect.refusals.refusal import Refusal
from scaffold.inspect.step_arguments import is_difference
from scaffold.source.values import Value

ORDER = 10
REASON = (
    "a distilled few-step loop: each turn predicts the clean sample and puts new noise on it, which is another step "
    "than those whose log-prob is rendered"
)


def refusal(program: Program) -> Refusal | None:
    """The loop's only way to update the sample mixes a prediction with new noise."""
    loop = program.denoising
    if loop is None:
        return None
    if loop.step is None and loop.renoised is not None and not _leads_on(loop):
        return Refusal(REASON, [loop.renoised.at, loop.loop.at])
    if loop.step is not None and (flag := _stochastic(program, loop.step)) is not None:
        return Refusal(REASON, [loop.step.at, flag.at])
    return None


def _leads_on(loop: Denoising) -> bool:
    """Whether the loop has an update, too, that goes by the difference of neighbouring times, as a step does.

    One that goes by the turn's time alone is the clean prediction.
    """
    parts = plain_parts(loop.inline) if loop.inline is not None else []
    return any(is_difference(part, loop.number) for part in parts)


def _stochastic(program: Program, step: Call) -> Value | None:
    """A scheduler that is always constructed to renoise."""
    whole = program.attribute_value(step.receiver) if step.receiver is not None else None
    held = [o for o in options(whole) if isinstance(o, (Obj, Call))]
    flags = [o.kwargs.get("stochastic_sampling") for o in held]
    on = [f for f in flags if isinstance(f, Const) and f.value is True]
    return on[0] if on and len(on) == len(flags) else None
