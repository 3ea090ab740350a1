"""Times that a loop computes from the number of its turn or carries along, and the factor of an update written out."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, number, plain
from scaffold.inspect.program.schedule import STEPS_KEY, base_grid, graded_part
from scaffold.inspect.program.turns import is_sample, reshaped
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Attr, Call, Carried, Const, Index, Item, Op, Param, Slice
from scaffold.source.values import Value

PROBES = (8, 13)
"""Numbers of steps that are tried: an answer must be the same for all."""
GUESSES = (1000.0, 640.0)
"""Positive numbers in place of settings whose value no source tells."""


@dataclass(frozen=True)
class TurnTimes:
    """The time of each turn for one number of steps, the last one's successor included where it is known."""

    times: tuple[float, ...]
    turns: int | None


def number_of_steps(value: Value) -> list[Value]:
    """The nodes of a value that stand for the number of steps asked for."""
    return [
        n
        for n in walk(value)
        if (isinstance(n, Param) and n.key.rpartition(".")[2] == STEPS_KEY)
        or (isinstance(n, Attr) and n.name == STEPS_KEY)
    ]


def spread(value: Value | None) -> Value | None:
    """The number that is repeated over a batch."""
    for _ in range(8):
        if not isinstance(value, Call):
            break
        inner = reshaped(value)
        if inner is None and value.name in ("full", "full_like"):
            inner = value.kwargs.get("fill_value") or value.args[-1]
        elif inner is None and value.name in ("tensor", "as_tensor") and value.args:
            inner = value.args[0]
        if inner is None:
            break
        value = inner
    return value


def counted(value: Value, loop: Denoising, steps: int, guess: float) -> list[float] | None:
    """The value of each turn, where it is made of the turn's number."""
    indices = [n for n in walk(value) if isinstance(n, Index) and n.loop == loop.number]
    if not indices:
        return None
    known: dict[int, object] = {id(n): float(guess) for n in walk(value) if _is_open(n)}
    source = loop.loop.source
    nodes = [value, *([source] if source is not None else [])]
    known |= {id(n): steps for node in nodes for n in number_of_steps(node)}
    if isinstance(source, Call) and source.name == "range" and source.args:
        known |= {id(n): steps for n in options(source.args[-1]) if isinstance(n, (Attr, Param))}
    found = [number(value, {**known, **{id(n): k for n in indices}}) for k in range(steps)]
    return [f for f in found if f is not None] if None not in found else None


def _is_open(node: Value) -> bool:
    return isinstance(node, Attr) or (isinstance(node, Param) and node.default is None)


def carried_times(value: Value, loop: Denoising, steps: int) -> TurnTimes | None:
    """The times of a ``while`` loop that carries its time along and asks it whether to go on."""
    if not isinstance(value, Carried) or value.final is None or value.init is None or loop.loop.source is None:
        return None
    if not isinstance(loop.loop.node, ast.While):
        return None
    steps_known: dict[int, object] = {
        id(n): steps for v in (value.init, value.final, loop.loop.source) for n in number_of_steps(v)
    }
    now = number(spread(value.init), steps_known)
    times: list[float] = []
    while now is not None and len(times) <= 4 * steps:
        known = {
            **steps_known,
            id(value): now,
            **_tensors(value.final, steps_known),
            **_tensors(loop.loop.source, steps_known),
        }
        goes_on = plain(loop.loop.source, known)
        if goes_on is MISSING:
            return None
        if not goes_on:
            return TurnTimes(tuple(times), len(times))
        times.append(now)
        now = number(value.final, known)
    return None


def _tensors(value: Value, known: dict[int, object]) -> dict[int, object]:
    """Numbers of tensors that hold one number."""
    return {
        id(n): held
        for n in walk(value)
        if isinstance(n, Call) and n.name == "tensor" and (held := number(spread(n), known)) is not None
    }


def coefficient_sign(loop: Denoising) -> int | None:
    """The sign of c in ``x + c * output``; None where it is not known."""
    if loop.inline is None or loop.sample is None or len(loop.inline.args) != 2:
        return None
    sample = loop.sample
    sides = [is_sample(a, sample) for a in loop.inline.args]
    if sides != [True, False] and not (sides == [False, True] and loop.inline.op == "+"):
        return None
    change = loop.inline.args[sides.index(False)]
    sign = -1 if loop.inline.op == "-" else 1
    factors = [f for f in _factors(change) if not through_model(f, sample)]
    for factor in factors:
        known = _sign(factor, loop)
        if known is None:
            return None
        sign *= known
    return sign if factors else None


def _factors(value: Value) -> list[Value]:
    if isinstance(value, Op) and value.op == "*":
        return [f for a in value.args for f in _factors(a)]
    return [value]


def _sign(value: Value, loop: Denoising) -> int | None:
    """The sign of a factor for every number of steps tried; a difference of a schedule's entries has its direction."""
    entries = _difference(value, loop)
    if entries is not None:
        later, earlier = entries
        return (later > earlier) - (later < earlier) or None
    if isinstance(value, Call) and value.name in ("ones_like", "ones"):
        return 1
    signs: set[int] = set()
    for steps in PROBES:
        known: dict[int, object] = {id(n): steps for n in number_of_steps(value)}
        known |= {id(n): steps for n in _loop_counts(loop)}
        found = number(value, {**known, **_tensors(value, known)})
        if found is None or found == 0:
            return None
        signs.add(1 if found > 0 else -1)
    return signs.pop() if len(signs) == 1 else None


def _loop_counts(loop: Denoising) -> list[Value]:
    source = loop.loop.source
    return options(source.args[-1]) if isinstance(source, Call) and source.name == "range" and source.args else []


def _difference(value: Value, loop: Denoising) -> tuple[float, float] | None:
    """Two values whose order is that of ``a - b``, for entries of one schedule by the number of the turn."""
    whole = value.base if isinstance(value, Item) and _offset(value.key, loop.number) == 0 else None
    if isinstance(whole, Op) and whole.op == "-" and len(whole.args) == 2:
        value = Op("-", [_turned(a, loop) for a in whole.args])
    if not (isinstance(value, Op) and value.op == "-" and len(value.args) == 2):
        return None
    places: list[int] = []
    vectors: list[Value] = []
    for side in value.args:
        if not isinstance(side, Item):
            return None
        offset = _offset(side.key, loop.number)
        if offset is None:
            return None
        places.append(offset)
        vectors.append(side.base)
    grid = base_grid(vectors[0])
    if vectors[0] is not vectors[1] or grid is None or len(set(places)) != 2:
        return None
    start, end = (number(grid.argument(i, n), {}) for i, n in ((0, "start"), (1, "end")))
    if start is None or end is None:
        return None
    points = graded_part(vectors[0], grid)
    found = [number(points, {id(grid): start + (end - start) * share}) for share in (0.25, 0.5)]
    if found[0] is None or found[1] is None or found[0] == found[1]:
        return None
    at = {min(places): found[0], max(places): found[1]}
    return at[places[0]], at[places[1]]


def _turned(side: Value, loop: Denoising) -> Value:
    """The entry of a turn of a schedule without its first or its last entries."""
    if isinstance(side, Item) and isinstance(side.key, Slice) and side.key.step is None:
        start = side.key.lower.value if isinstance(side.key.lower, Const) else 0
        index: Value = Index(loop.number)
        return Item(side.base, Op("+", [index, Const(start)]) if start else index)
    return side


def _offset(key: Value, loop: int) -> int | None:
    if isinstance(key, Index):
        return 0 if key.loop == loop else None
    if isinstance(key, Op) and key.op in ("+", "-") and len(key.args) == 2:
        index, by = key.args
        if isinstance(index, Index) and index.loop == loop and isinstance(by, Const) and isinstance(by.value, int):
            return by.value if key.op == "+" else -by.value
    return None
