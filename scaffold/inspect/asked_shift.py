"""The shift of a scheduler: the argument of ``set_timesteps`` overrides the constructor's."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Obj
from scaffold.source.values import Value


def shift_of(program: Program, made: Value) -> tuple[float | None, Evidence | None]:
    """Return the default value and its place; None if there is none, or if a request's value is unknown."""
    asked: list[tuple[object, Evidence | None]] = []
    for record in program.trace.calls:
        if record.method == "set_timesteps" and any(o is made for o in options(record.held_by)):
            given = record.kwargs.get("shift") or record.bound.get("shift")
            number = default_of(given) if given is not None else None
            asked.append((number, record.at))
    if any(number is not None for number, _ in asked):
        numbers = {number if isinstance(number, (int, float)) else None for number, _ in asked}
        return _float(numbers.pop() if len(numbers) == 1 else None), asked[0][1]
    kept = made.kwargs.get("shift") if isinstance(made, (Call, Obj)) else None
    return _float(default_of(kept) if kept is not None else None), made.at


def _float(number: object) -> float | None:
    return float(number) if isinstance(number, (int, float)) else None
