"""Which noise levels the loop walks through: how many, which way, and how they are shifted."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options, walk, walk_all
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import default_of, number
from scaffold.inspect.program.schedule import (
    SHIFT_PROBES,
    base_grid,
    entry,
    is_asked_for,
    solved_shift,
    turn_count,
    vector_of,
)
from scaffold.inspect.program.turns import is_turn
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Const, Item, Obj, Param, Slice
from scaffold.inspect.step_arguments import is_difference
from scaffold.source.syntax import around
from scaffold.source.values import Value

ORDER = 5
KEYS = (
    "answers.scheduler.steps",
    "answers.scheduler.direction",
    "answers.scheduler.shift",
    "detail.scheduler.default_steps",
    "detail.scheduler.shift_setting",
    "detail.schedule.kind",
    "detail.schedule.parts",
    "detail.schedule.start_level",
)


def answers(program: Program) -> dict[str, Fact]:
    """``steps`` counts turns for n = num_inference_steps; ``shift`` is the default of the text-to-image path,
    ``shift_setting`` the extra argument with which a request asks for another.

    What the loop runs over decides, then the class of the source that makes it. ``kind`` is ``truncated`` where a
    shifted grid is cut to whole numbers of ``parts``, all that the model is told; ``start_level`` is the first point
    before any shift.
    """
    found, other = dict(loop_schedule(program)), class_schedule(program)
    for key in KEYS:
        if key in other and (key not in found or found[key].confidence == "unknown"):
            found[key] = other[key]
    return found


# The schedule that a scheduler class of the source makes in ``set_timesteps``, from its constructor's arguments.

_WHOLE = frozenset(("int64", "int32", "long", "int"))


@once
def class_schedule(program: Program) -> dict[str, Fact]:
    """Return steps, direction, shift and form of it."""
    loop = program.denoising
    if loop is None or loop.loop.source is None:
        return {}
    vector = vector_of(loop.loop.source)
    configured, places = _configuration(vector)
    grid = base_grid(vector)
    if grid is None or not configured:
        return {}
    found: dict[str, Fact] = {}
    unit = _at(vector, grid, 1.0, configured)
    shift = _shift(vector, grid, configured, unit)
    if not unit or shift is None:
        return {}
    count = program.counter.length(_cut(vector, grid))
    if count is not None and count.factor == 1:
        found["answers.scheduler.steps"] = fact(count.text, [loop.loop.at, grid.at, *count.places])
    given = [n for n in walk(vector, stop={id(grid)}) if isinstance(n, (Conf, Param))]
    # What a configuration or a request may give is a default, and no more than likely.
    sure: Confidence = "likely" if given else "certain"
    found["answers.scheduler.shift"] = fact(shift, [*places, *(n.at for n in given), vector.at], sure)
    start, end = _end(grid.argument(0, "start"), configured), _end(grid.argument(1, "end", "stop"), configured)
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


def _shift(vector: Value, grid: Call, configured: dict[int, float], unit: float | None) -> float | None:
    """Solve the entries for s in s·t/(1+(s-1)·t); None where the schedule has another form."""
    values = [_at(vector, grid, t, configured) for t in SHIFT_PROBES]
    shift = solved_shift([value / unit if unit and value is not None else None for value in values])
    return None if shift is None else round(shift, 9)


def _at(value: Value, grid: Call, point: float, configured: dict[int, float]) -> float | None:
    """The schedule's entry where the grid's is ``point``."""
    copies = {id(n): point for n in walk(value) if isinstance(n, Call) and _is_copy(n, grid)}
    return number(value, {**configured, **copies})


def _cut(vector: Value, grid: Call) -> Value | None:
    """The grid with the points that are taken off, without copies in between."""
    for node in walk(vector):
        if isinstance(node, Item) and isinstance(node.key, Slice):
            if _is_copy(node.base, grid):
                return Item(grid, node.key, at=node.at)
    return grid


def _end(value: Value | None, configured: dict[int, float]) -> float | None:
    """A number, or the first or last entry of another schedule made from a grid of numbers."""
    plain = number(value, configured)
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
    return _at(value.base, inner, float(end), configured) if isinstance(end, (int, float)) else None


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


# The schedule computed before the loop: from its grid, or from a scheduler's arguments.


@once
def loop_schedule(program: Program) -> dict[str, Fact]:
    """Return steps, direction and shift, as far as what the loop runs over tells them."""
    found = program.denoising
    if found is None:
        return {}
    facts: dict[str, Fact] = {}
    count = turn_count(program.counter, found.loop.source)
    if count is not None and count.factor == 1:
        sure: Confidence = "certain" if count.sure else "likely"
        facts["answers.scheduler.steps"] = fact(count.text, [found.loop.at, *count.places], sure)
    facts.update(_default_steps(program, found))
    vector = schedule_vector(found)
    if vector is None:
        return facts
    grid = base_grid(vector)
    if grid is not None:
        facts.update(_of_grid(vector, grid))
    return facts


def _default_steps(program: Program, found: Denoising) -> dict[str, Fact]:
    """The number of steps without any being asked for, where all ways to the loop's times agree on it."""
    if found.loop.source is None:
        return {}
    nodes = list(walk(found.loop.source))
    asked = {id(n.base) for n in nodes if isinstance(n, Attr) and n.name in ("timesteps", "sigmas")}
    for record in program.trace.calls:
        base = record.func.base if isinstance(record.func, Attr) else record.receiver
        if record.method == "set_timesteps" and id(base) in asked:
            nodes += walk_all(record.arguments)
    given = {id(n): n for n in nodes if isinstance(n, Param) and is_asked_for(n)}
    defaults = {default_of(n) for n in given.values()}
    if len(defaults) != 1 or type(default := defaults.pop()) is not int:
        return {}
    # A file may override the default, which is thus no more than likely.
    sure: Confidence = "likely" if any(map(rests_on_a_file, given.values())) else "certain"
    return {"detail.scheduler.default_steps": fact(default, [n.at for n in given.values()][:3], sure)}


def rests_on_a_file(given: Param) -> bool:
    """Whether a file beside the checkpoint may say what a setting is that no request gives."""
    return given.default is not None and any(isinstance(node, Conf) for node in walk(given.default))


def _of_grid(vector: Value, grid: Call) -> dict[str, Fact]:
    """Direction and shift of a schedule that is made from one grid."""
    facts: dict[str, Fact] = {}
    # Where a file may say where the grid begins and ends, its default is no more than likely.
    sure: Confidence = "likely" if any(isinstance(n, Conf) for a in grid.args[:2] for n in walk(a)) else "certain"
    start, end = (default_of(grid.argument(i, n)) for i, n in ((0, "start"), (1, "end")))
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
        return facts
    at_points = [entry(vector, grid, start + (end - start) * x) for x in (0.0, 0.25, 0.5, 0.75)]
    first, last = at_points[0], at_points[-1]
    if first is not None and last is not None and first != last:
        direction = "descending" if first > last else "ascending"
        facts["answers.scheduler.direction"] = fact(direction, [grid.at, vector.at], sure)
    shift = _shift_of_grid(vector, grid, ascending=first is not None and last is not None and first < last)
    facts["answers.scheduler.shift"] = shift
    asked = [n for n in walk(vector, stop={id(grid)}) if isinstance(n, Param) and n.root == "extra_args"]
    settings = {n.key: n for n in asked if shift.value is not None and _is_number(n, shift.value)}
    if len(settings) == 1:
        name, node = next(iter(settings.items()))
        facts["detail.scheduler.shift_setting"] = fact(name, [node.at])
    return facts


def schedule_vector(found: Denoising) -> Value | None:
    """The schedule that the loop walks: from the step's arguments, else from what the loop runs over."""
    if found.step is not None:
        for argument in [*found.step.args, *found.step.kwargs.values()]:
            if is_turn(argument, found.number) and not is_difference(argument, found.number):
                return vector_of(next(o for o in options(argument)))
    if found.inline is not None:
        for node in walk(found.inline):
            if isinstance(node, Item) and is_turn(node, found.number) and base_grid(node.base) is not None:
                return node.base
    return vector_of(found.loop.source) if found.loop.source is not None else None


def _shift_of_grid(vector: Value, grid: Call, ascending: bool) -> Fact:
    """Solve the entries for s in s·t/(1+(s−1)·t); a schedule of another form has no shift.

    On rising times the same formula acts on 1−t, which is the inverse on t.
    """
    top = entry(vector, grid, 1.0)
    levels = [value / top if top and (value := entry(vector, grid, t)) is not None else None for t in SHIFT_PROBES]
    shift = solved_shift(levels)
    if shift is None:
        return UNKNOWN
    shift = round(1 / shift if ascending else shift, 9)
    sources = [n for n in walk(vector, stop={id(grid)}) if isinstance(n, (Const, Param, Conf))]
    given = [n for n in sources if _is_number(n, shift)]
    param = next((n for n in given if isinstance(n, Param)), None)
    places = [param.at] if param is not None else []
    places += [n.at for n in given if isinstance(n, Const)][:2]
    # A request's own setting counts; what a file may say of its default, or in its place, is no more than likely.
    read = param is not None and rests_on_a_file(param)
    confidence = "likely" if read or any(isinstance(n, Conf) for n in given) else "certain"
    return Fact(shift, fact(None, [*places, vector.at]).evidence, confidence)  # type: ignore[arg-type]


def _is_number(value: Value, wanted: float) -> bool:
    known = default_of(value)
    return isinstance(known, (int, float)) and not isinstance(known, bool) and abs(known - wanted) < 1e-9
