"""Finds the denoising loop: the one that passes a variable to a model and updates it from the output."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.conditions import by_default, leans
from scaffold.inspect.program.trace import CallRecord, LoopRecord, Trace
from scaffold.inspect.program.updates import (
    STEP_METHOD,
    arguments,
    inline_output,
    is_renoised,
    is_step,
    is_update,
    step_output,
    unwrap,
    walks_a_schedule,
)
from scaffold.inspect.program.values import Call, Carried, Const, Op
from scaffold.source.values import Value


@dataclass(eq=False)
class Denoising:
    """The loop, the sample it carries, and how a turn updates it.

    ``step`` is the call that updates the sample, ``inline`` the expression that does; both are set where the
    pipeline chooses between them. ``renoised`` is the clean prediction mixed with new noise, where a turn does that
    instead. ``streams`` are all variables that the loop updates so, this one included. ``ways`` are all the updates
    that a turn may make of the sample, each with its prediction.
    """

    loop: LoopRecord
    sample: Carried | None
    step: Call | None
    inline: Op | None
    model_output: Value | None
    renoised: Call | Op | None = None
    streams: tuple[Denoising, ...] = ()
    ways: tuple[tuple[Value, Value], ...] = ()

    @property
    def number(self) -> int:
        return self.loop.number


def find_denoising(trace: Trace) -> list[Denoising]:
    """Return the denoising loops, the one that the default path takes first.

    Of a loop that is run several times, stage after stage, the first run stands before the others.
    """
    steps: dict[int, list[CallRecord]] = {}
    for record in trace.calls:
        if record.method == STEP_METHOD and record.loops:
            steps.setdefault(record.loops[-1], []).append(record)
    found: list[Denoising] = []
    for loop in trace.loops.values():
        candidates = [c for variable in loop.carried.values() if (c := _from_variable(loop, variable)) is not None]
        best = max(candidates, key=lambda c: (*_rank(c), _is_called_with(c, candidates)), default=None) or _from_calls(
            loop, steps.get(loop.number, [])
        )
        if best is not None:
            best.streams = tuple(candidates)
            found.append(best)
    latest = {id(loop.loop.node): loop.number for loop in found}
    return sorted(
        found,
        key=lambda loop: (
            *_is_beside_default(loop, found), *_preference(loop), -latest[id(loop.loop.node)], loop.number,
        ),
    )  # fmt: skip


def _is_beside_default(one: Denoising, loops: list[Denoising]) -> tuple[bool, bool]:
    """Whether a condition goes the way of another loop by default, or leans to it, and not this one's."""
    taken = {id(cond): truth for loop in loops if loop is not one for cond, truth in loop.loop.conditions}
    parting = [(cond, truth) for cond, truth in one.loop.conditions if taken.get(id(cond), truth) is not truth]
    return (
        any(by_default(cond) is (not truth) for cond, truth in parting),
        any(leans(cond) is (not truth) for cond, truth in parting),
    )


def _preference(found: Denoising) -> tuple[bool, bool, bool, int]:
    return found.step is None, found.sample is None, found.inline is None, len(found.loop.conditions)


def _rank(found: Denoising) -> tuple[bool, bool]:
    """Rank a scheduler's step first, then a written update, then re-noised predictions."""
    return (found.step is not None, found.inline is not None)


def _is_called_with(found: Denoising, candidates: list[Denoising]) -> bool:
    """Whether a call of a turn is given the variable; a sum of predictions that is kept for later turns is given none.

    It tells variables apart of which a turn updates several.
    """
    variable = found.sample
    if len(candidates) < 2 or variable is None or variable.final is None:
        return False
    ends = {id(c.sample) for c in candidates}
    calls = [node for node in walk(variable.final, stop=ends) if isinstance(node, Call) and node is not found.step]
    return any(node is variable for call in calls for given in arguments(call) for node in walk(given, stop=ends))


def _from_variable(loop: LoopRecord, variable: Carried) -> Denoising | None:
    if variable.final is None or _is_plain(variable.init):
        return None
    step: Call | None = None
    inline: Op | None = None
    renoised: Call | Op | None = None
    ways: list[tuple[Value, Value | None]] = []
    for option in options(variable.final):
        core = unwrap(option)
        if isinstance(core, (Call, Op)) and renoised is None and is_renoised(core, variable):
            renoised = core
        elif isinstance(core, Call) and is_step(core, variable) and (step is None or core.name == STEP_METHOD):
            step = core
            ways.append((core, step_output(core, variable)))
        elif isinstance(core, Op) and inline is None and is_update(core, variable):
            inline = core
            ways.append((core, inline_output(core, variable)))
    if step is None and inline is None and renoised is None:
        return None
    if step is None and inline is not None and not walks_a_schedule(inline, loop, variable):
        return None
    output = step_output(step, variable) if step is not None else inline_output(inline, variable)
    known = tuple((update, predicted) for update, predicted in ways if predicted is not None)
    return Denoising(loop, variable, step, inline, output, renoised, ways=known)


def _is_plain(value: Value | None) -> bool:
    """Whether a variable starts as a number or a text: a count or a total, no sample."""
    return isinstance(value, Const) and isinstance(value.value, (int, float, str))


def _from_calls(loop: LoopRecord, steps: list[CallRecord]) -> Denoising | None:
    """A loop that keeps its sample in an attribute still calls a scheduler's ``step``."""
    for record in steps:
        if len(record.args) + len(record.kwargs) >= 3:
            output = record.args[0] if record.args else record.kwargs.get("model_output")
            step = record.result
            if not isinstance(step, Call):
                # A followed step keeps its arguments.
                step = Call(record.func, record.args, record.kwargs, record.loops, at=record.at)
            return Denoising(loop, None, step, None, output)
    return None
