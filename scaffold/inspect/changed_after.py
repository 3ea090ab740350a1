"""Loops that change the sample once more after its update: a clamp, or a part that is given and put back."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.trace import LoopRecord
from scaffold.inspect.program.updates import is_step, is_update, walks_a_schedule
from scaffold.inspect.program.values import Call, Carried, Op
from scaffold.source.values import Value

REASON = (
    "after its update the loop changes the sample once more, of which the log-prob of a step knows nothing: do it "
    "behind the loop, or before the denoiser is called"
)


def changed_after(program: Program) -> tuple[str, list[Evidence | None]] | None:
    """Return reason and places where the update stands inside of what a turn leaves, and the turn leaves another."""
    for loop in program.trace.loops.values():
        for variable in loop.carried.values():
            if variable.final is not None and (update := _inside(variable.final, loop, variable)) is not None:
                return REASON, [variable.final.at, update.at, loop.at]
    return None


def _inside(final: Value, loop: LoopRecord, variable: Carried) -> Value | None:
    for node in walk(final):
        if node is final:
            continue
        if isinstance(node, Call) and is_step(node, variable):
            return node
        if isinstance(node, Op) and is_update(node, variable) and walks_a_schedule(node, loop, variable):
            return node
    return None
