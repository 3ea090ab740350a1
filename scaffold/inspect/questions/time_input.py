"""What the denoiser and the scheduler's step are told of a turn's time, for a noise level in [0, 1]."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.numeric import number
from scaffold.inspect.program.turns import is_turn, without_reshaping
from scaffold.inspect.program.values import Elem, Op
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.time.denoiser", "detail.time.step")
_UNIT = 1000.0


def answers(program: Program) -> dict[str, Fact]:
    """``sigma``, ``1 - sigma`` or ``1000 sigma``, where the loop runs over 1000 times the noise level.

    That it does is told by an argument that is 1 at 0 and 0 at 1000, or the reverse: no other unit gives that.
    """
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None or denoiser.time_name is None or loop.step is None:
        return {}
    given = denoiser.record.named
    told = _form(given.get(denoiser.time_name))
    if told not in ("sigma", "1 - sigma"):
        return {}
    facts = {KEYS[0]: fact(told, [given[denoiser.time_name].at])}
    for argument in [*loop.step.args, *loop.step.kwargs.values()]:
        if is_turn(argument, loop.number):
            form = _form(argument)
            if form is not None:
                facts[KEYS[1]] = fact(form, [argument.at, loop.step.at])
            break
    return facts


def _form(value: Value | None) -> str | None:
    value = without_reshaping(value) if value is not None else None
    entry = _entry(value)
    if value is None or entry is None:
        return None
    ends = (number(value, {id(entry): 0.0}), number(value, {id(entry): _UNIT}))
    middle = number(value, {id(entry): _UNIT / 4})
    forms = {(0.0, 0.25, 1.0): "sigma", (1.0, 0.75, 0.0): "1 - sigma", (0.0, _UNIT / 4, _UNIT): "1000 sigma"}
    return forms.get((ends[0], middle, ends[1])) if None not in (*ends, middle) else None  # type: ignore[arg-type]


def _entry(value: Value | None) -> Elem | None:
    """The turn's entry that an expression is made of."""
    for option in options(value):
        if isinstance(option, Elem):
            return option
        if isinstance(option, Op):
            return next((e for a in option.args if (e := _entry(without_reshaping(a))) is not None), None)
    return None
