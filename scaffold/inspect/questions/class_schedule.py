"""The schedule that a scheduler class of the source makes in ``set_timesteps``, from its constructor's arguments."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Confidence, Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options, walk, walk_all
from scaffold.inspect.program.numeric import default_of, number
from scaffold.inspect.program.schedule import SHIFT_PROBES, base_grid, solved_shift, vector_of
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Const, Item, Obj, Param, Slice
from scaffold.source.syntax import around
from scaffold.source.values import Value

ORDER = 6
KEYS = ("detail.schedule.kind", "detail.schedule.parts", "detail.schedule.start_level")
_WHOLE = frozenset(("int64", "int32", "long", "int"))


def answers(program: Program) -> dict[str, Fact]:
    """Form of the schedule.

    ``kind`` is ``truncated`` where a shifted grid is cut to whole numbers of ``parts``, which are all that the model is
    told. ``start_level`` is the first point before any shift.
    """
    return {key: found for key, found in class_schedule(program).items() if key in KEYS}


@once
def class_schedule(program: Program) -> dict[str, Fact]:
    """Return the same with steps, direction and shift."""
    loop = program.denoising
    if loop is None or loop.loop.source is None:
        return {}
    vector = vector_of(loop.loop.source)
    held, places = _configuration(vector)
    grid = base_grid(vector)
    if grid is None or not held:
        return {}
    found: dict[str, Fact] = {}
    unit = _at(vector, grid, 1.0, held)
    shift = _shift(vector, grid, held, unit)
    if not unit or shift is None:
        return {}
    count = program.counter.length(_cut(vector, grid))
    if count is not None and count.factor == 1:
        found["answers.scheduler.steps"] = fact(count.text, [loop.loop.at, grid.at, *count.places])
    given = [n for n in walk(vector, stop={id(grid)}) if isinstance(n, (Conf, Param))]
    # What a configuration or a request may give is a default, and no more than likely.
    sure: Confidence = "likely" if given else "certain"
    found["answers.scheduler.shift"] = fact(shift, [*places, *(n.at for n in given), vector.at], sure)
    start, end = _end(grid.argument(0, "start"), held), _end(grid.argument(1, "end", "stop"), held)
    if start is not None and end is not None and start != end:
        found["answers.scheduler.direction"] = fact("descending" if start > end else "ascending", [grid.at, vector.at])
    if start is not None and not given and _is_cut_to_whole(program, loop.loop.source):
        found["detail.schedule.kind"] = fact("truncated", [vector.at, grid.at])
        found["detail.schedule.parts"] = fact(round(unit), [vector.at])
        found["detail.schedule.start_level"] = fact(round(start / (shift - (shift - 1) * start), 9), [grid.at, *places])
    return found


def _configuration(vector: Value) -> tuple[dict[int, float], list[Evidence | None]]:
    """Numbers behind ``scheduler.config.name``: what the constructor was given by name."""
    known: dict[int, float] = {}
    places: list[Evidence | None] = []
    conditions = [n.cond for n in walk(vector) if isinstance(n, Choice) and n.cond is not None]
    for node in walk_all([vector, *conditions]):
        if not (isinstance(node, Attr) and isinstance(node.base, Attr) and node.base.name == "config"):
            continue
        for scheduler in options(node.base.base):
            value = scheduler.kwargs.get(node.name) if isinstance(scheduler, Obj) else None
            given = default_of(value)
            if isinstance(given, (int, float)):  # flags decide between two forms of the schedule
                known[id(node)] = given
                places += [scheduler.at, value.at if value is not None else None]
    return known, places


def _shift(vector: Value, grid: Call, held: dict[int, float], unit: float | None) -> float | None:
    """Solve the entries for s in s·t/(1+(s-1)·t); None where the schedule has another form."""
    values = [_at(vector, grid, t, held) for t in SHIFT_PROBES]
    shift = solved_shift([value / unit if unit and value is not None else None for value in values])
    return None if shift is None else round(shift, 9)


def _at(value: Value, grid: Call, point: float, held: dict[int, float]) -> float | None:
    """The schedule's entry where the grid's is ``point``."""
    copies = {id(n): point for n in walk(value) if isinstance(n, Call) and _is_copy(n, grid)}
    return number(value, {**held, **copies})


def _cut(vector: Value, grid: Call) -> Value | None:
    """The grid with the points that are taken off, without copies in between."""
    for node in walk(vector):
        if isinstance(node, Item) and isinstance(node.key, Slice):
            if _is_copy(node.base, grid):
                return Item(grid, node.key, at=node.at)
    return grid


def _end(value: Value | None, held: dict[int, float]) -> float | None:
    """A number, or the first or last entry of another schedule made from a grid of numbers."""
    plain = number(value, held)
    if plain is not None or value is None:
        return plain
    while isinstance(value, Call) and isinstance(value.func, Attr) and value.name in ("item", "cpu", "float"):
        value = value.func.base
    if not (isinstance(value, Item) and isinstance(value.key, Const) and value.key.value in (0, -1)):
        return None
    inner = base_grid(value.base)
    if inner is None:
        return None
    backwards = any(_is_reversal(n) for n in walk(value.base))
    at_start = (value.key.value == 0) is not backwards
    end = default_of(inner.argument(0, "start") if at_start else inner.argument(1, "end", "stop"))
    return _at(value.base, inner, float(end), held) if isinstance(end, (int, float)) else None


def _is_cut_to_whole(program: Program, source: Value) -> bool:
    """Whether the vector that the loop runs over is converted to integers where it is made."""
    place = next((n.at for n in walk(source) if isinstance(n, Call) and n.name == "from_numpy"), source.at)
    if place is None:
        return False
    tree = program.source.tree(place.file)
    for node in around(tree, place.line):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.lineno == place.line):
            continue
        if node.func.attr in ("long", "int"):
            return True
        kinds = [*(k.value for k in node.keywords if k.arg == "dtype"), *node.args]
        if node.func.attr == "to" and any(isinstance(k, ast.Attribute) and k.attr in _WHOLE for k in kinds):
            return True
    return False


def _is_copy(value: Value, grid: Call) -> bool:
    """The grid itself, or its entries copied."""
    while value is not grid:
        if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in ("copy", "clone"):
            value = value.func.base
        elif isinstance(value, Item) and isinstance(value.key, Slice):
            value = value.base
        else:
            return False
    return True


def _is_reversal(node: Value) -> bool:
    """Whether a value is another from its end to its begin."""
    return (
        isinstance(node, Item)
        and isinstance(node.key, Slice)
        and node.key.step is not None
        and default_of(node.key.step) == -1
    )
