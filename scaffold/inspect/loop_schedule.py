"""The schedule computed before the loop: from its grid, or from a scheduler's arguments."""

from __future__ import annotations

from scaffold.inspect.facts import UNKNOWN, Confidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options, walk, walk_all
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import default_of
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
from scaffold.inspect.program.values import Attr, Call, Conf, Const, Item, Param
from scaffold.inspect.step_arguments import is_difference
from scaffold.source.values import Value


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
    shift = _shift(vector, grid, ascending=first is not None and last is not None and first < last)
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


def _shift(vector: Value, grid: Call, ascending: bool) -> Fact:
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
