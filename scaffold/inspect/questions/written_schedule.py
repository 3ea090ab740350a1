"""The schedule of a loop that writes its update out, as an expression that computes the same numbers."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.loop_schedule import schedule_vector
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.schedule import base_grid
from scaffold.inspect.program.spelling import STEPS, spell
from scaffold.inspect.program.turn_time import number_of_steps, spread
from scaffold.inspect.program.values import Choice, Index
from scaffold.inspect.questions.counted_time import candidates
from scaffold.source.values import Value

ORDER = 19
KEYS = ("detail.schedule.written",)


def answers(program: Program) -> dict[str, Fact]:
    """``{"form", "text"}``: ``vector``, all points of the schedule, the last one included, or ``turn``, the time of
    turn ``step``; over ``num_inference_steps`` and settings of the checkpoint."""
    loop = program.denoising
    if loop is None or loop.inline is None or loop.step is not None:
        return {}
    found = _vector(loop) or _turn(program, loop)
    if found is None:
        return {}
    form, text, place = found
    return {KEYS[0]: fact({"form": form, "text": ast.unparse(ast.parse(text, mode="eval"))}, [place])}


def _vector(loop: Denoising) -> tuple[str, str, Evidence | None] | None:
    vector = schedule_vector(loop)
    if vector is None or base_grid(vector) is None:
        return None
    chosen = _by_default(vector)
    text = spell(chosen, {}) if chosen is not None else None
    return ("vector", text, vector.at) if text is not None and STEPS in text else None


def _by_default(vector: Value) -> Value | None:
    """The form that is taken where nobody gives another schedule."""
    while isinstance(vector, Choice):
        kept = [o for o in vector.options if base_grid(o) is not None]
        if len(kept) == 1:
            vector = kept[0]
            continue
        truth = default_of(vector.cond) if vector.cond is not None and len(vector.options) == 2 else None
        if not isinstance(truth, bool):
            return None
        vector = vector.options[0 if truth else 1]
    return vector


def _turn(program: Program, loop: Denoising) -> tuple[str, str, Evidence | None] | None:
    for candidate in candidates(program, loop):
        for option in options(spread(candidate) or candidate):
            names = {id(n): STEPS for n in number_of_steps(option)}
            names |= {id(n): "step" for n in _indices(option, loop.number)}
            text = spell(option, names) if len(names) > 1 else None
            if text is not None and "step" in text.replace(STEPS, "") and STEPS in text:
                return "turn", text, candidate.at
    return None


def _indices(value: Value, loop: int) -> list[Value]:
    return [n for n in walk(value) if isinstance(n, Index) and n.loop == loop]
