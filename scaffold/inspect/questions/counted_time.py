"""Steps and direction of a loop that computes its time from the number of the turn, or carries it along."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import depends, options
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.schedule import Linear, is_asked_for
from scaffold.inspect.program.turn_time import GUESSES, PROBES, carried_times, counted, number_of_steps, spread
from scaffold.inspect.program.values import Carried
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.values import Value

ORDER = 8
KEYS = ("detail.schedule.turn_times",)


def answers(program: Program) -> dict[str, Fact]:
    """``turn_times`` is ``i / n``, ``1 - i / n`` or ``1 - i / n, summed``: what the model is told in turn ``i``."""
    return {key: found for key, found in counted_schedule(program).items() if key in KEYS}


@once
def counted_schedule(program: Program) -> dict[str, Fact]:
    """Return the same with steps, direction and a shift of 1."""
    loop = program.denoising
    if loop is None or loop.step is not None:
        return {}
    for value in candidates(program, loop):
        places = [value.at, loop.loop.at]
        found = [
            f for o in options(spread(value) or value) if (f := _by_number(o, loop, places) or _by_sum(o, loop, places))
        ]
        if found:
            return found[0]
    return {}


def candidates(program: Program, loop: Denoising) -> Iterator[Value]:
    """What may be the time: the denoiser's argument, what the loop's condition asks, what calls of a turn are given."""
    found = find_denoiser(program)
    if found is not None and found.time_name is not None:
        given = found.record.named
        if found.time_name in given:
            yield given[found.time_name]
    for variable in loop.loop.carried.values():
        if loop.loop.source is not None and depends(loop.loop.source, variable):
            yield variable
    for record in program.trace.calls:
        if record.loops[-1:] == (loop.number,) and record.method in ("full", "tensor"):
            yield record.result


def _by_number(value: Value, loop: Denoising, places: list[Evidence | None]) -> dict[str, Fact]:
    runs = [counted(value, loop, n, g) for n in PROBES for g in GUESSES]
    if any(r is None for r in runs):
        return {}
    ways = {_way(r) for r in runs if r is not None}
    if len(ways) != 1 or None in ways:
        return {}
    facts = {"answers.scheduler.direction": fact(ways.pop(), places)}
    forms = {_form(counted(value, loop, n, g), n) for n in PROBES for g in GUESSES}
    if len(forms) == 1 and None not in forms:
        facts["detail.schedule.turn_times"] = fact(forms.pop(), places)
        facts["answers.scheduler.shift"] = fact(1.0, places)
    return facts


def _by_sum(value: Value, loop: Denoising, places: list[Evidence | None]) -> dict[str, Fact]:
    if not isinstance(value, Carried):
        return {}
    runs = [carried_times(value, loop, n) for n in PROBES]
    found = [(n, r) for n, r in zip(PROBES, runs, strict=True) if r is not None]
    if len(found) != len(runs):
        return {}
    ways = {_way(list(r.times)) for _, r in found}
    if len(ways) != 1 or None in ways:
        return {}
    facts = {"answers.scheduler.direction": fact(ways.pop(), places)}
    beside = {(r.turns or 0) - n for n, r in found}
    if len(beside) == 1 and all(is_asked_for(n) for n in _counts(value, loop)):
        facts["answers.scheduler.steps"] = fact(Linear(1, beside.pop()).text, places)
    forms = {_form(list(r.times), n) for n, r in found}
    if len(forms) == 1 and None not in forms:
        facts["detail.schedule.turn_times"] = fact(f"{forms.pop()}, summed", places)
        facts["answers.scheduler.shift"] = fact(1.0, places)
    return facts


def _counts(value: Carried, loop: Denoising) -> list[Value]:
    """What stands for the number of steps in a time that is carried along."""
    return [n for v in (value.init, value.final, loop.loop.source) if v is not None for n in number_of_steps(v)]


def _way(times: list[float]) -> str | None:
    if all(a > b for a, b in pairwise(times)):
        return "descending"
    if all(a < b for a, b in pairwise(times)):
        return "ascending"
    return None


def _form(times: list[float] | None, steps: int) -> str | None:
    if times is None or len(times) != steps:
        return None
    for name, wanted in (
        ("i / n", [i / steps for i in range(steps)]),
        ("1 - i / n", [1 - i / steps for i in range(steps)]),
    ):
        if all(abs(a - b) < 1e-9 for a, b in zip(times, wanted, strict=True)):
            return name
    return None
