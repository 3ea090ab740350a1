"""The schedule of a scheduler class of the source as its constructor's own defaults make it, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.inspect.program.algebra import options, reach
from scaffold.inspect.program.held_scheduler import HeldScheduler, apart
from scaffold.inspect.program.numeric import MISSING, default_of, number, plain
from scaffold.inspect.program.program import Program, once
from scaffold.inspect.program.schedule import STEPS_KEY, is_grid
from scaffold.inspect.program.spelling import SIZE, spell
from scaffold.inspect.program.values import Attr, Call, Choice, Const, Item, Obj, Param, Slice
from scaffold.source.values import Value

_DEEP = 10**6
"""Deeper than any execution: what is assigned to an object of this depth replaces what it held."""
_COPIES = ("copy", "clone")


@dataclass(eq=False)
class DefaultSchedule:
    """What ``set_timesteps`` leaves behind.

    Attributes:
        times: ``timesteps``, the time of each turn.
        levels: ``sigmas``, where the class has them.
        grid: the evenly spaced grid that the times are made from.
        known: numbers and flags of the configuration, by ``id`` of their node.
        sizes: what the pipeline tells of the sample, by parameter.
        opaque: whether it tells something else that is not known.
    """

    times: Value
    levels: Value | None
    grid: Call
    known: dict[int, object]
    sizes: list[Param]
    opaque: bool

    def at(self, point: float, size: float) -> float | None:
        """Return the time where the grid's entry is ``point``, for a sample of ``size`` positions."""
        nodes = walk_decided(self.times, self.known)
        copies = {id(n): point for n in nodes if isinstance(n, Call) and is_copy(n, self.grid)}
        return number(self.times, {**self.known, **copies, **{id(p): size for p in self.sizes}})


@once
def default_schedule(program: Program, held: HeldScheduler) -> DefaultSchedule | None:
    """Return the schedule of a class of the source, made once; None where it is not made from one grid."""
    if held.cls is None or held.asked is None or not isinstance(held.made[0], Obj):
        return None
    made = held.made[0]
    from_file = made.json_file is not None
    args, kwargs = ([], {}) if from_file else (made.args, made.kwargs)
    twin = Obj(held.cls, args, kwargs, depth=_DEEP, at=made.at)
    asked, sizes, opaque = _arguments(program, held)
    with apart(program):
        program.invoke(twin, "set_timesteps", asked)
    times = twin.attrs.get("timesteps")
    if times is None:
        return None
    known = configuration(program, times, twin)
    for size in sizes:
        known[id(size)] = 1.0  # not None, which a schedule may ask
    grid = next((n for n in walk_decided(times, known) if is_grid(n)), None)
    if grid is None:
        return None
    return DefaultSchedule(times, twin.attrs.get("sigmas"), grid, known, sizes, opaque)


def _arguments(program: Program, held: HeldScheduler) -> tuple[dict[str, Value], list[Param], bool]:
    """The arguments of the pipeline's call; what is not a plain value and no number of steps becomes a parameter."""
    assert held.asked is not None
    found: dict[str, Value] = {}
    sizes: list[Param] = []
    opaque = False
    sample = program.denoising.sample if program.denoising is not None else None
    for name, value in held.asked.bound.items():
        if name == STEPS_KEY:
            found[name] = Param("sampling_params", STEPS_KEY)
        elif default_of(value) is MISSING and name != "device":
            text = spell(value, {}, sample.init if sample is not None else None)
            opaque = opaque or text is None or SIZE not in text
            sizes.append(Param("probe", name))
            found[name] = sizes[-1]
        else:
            found[name] = value
    return found, sizes, opaque


def configuration(program: Program, value: Value, scheduler: Obj) -> dict[int, object]:
    """Plain values behind ``self.config.name``: what the constructor was given, else its default."""

    def inner(node: Value) -> list[Value]:
        return [*node.parts(), *([node.cond] if isinstance(node, Choice) and node.cond is not None else [])]

    known: dict[int, object] = {}
    for node in reach([value], inner):
        if isinstance(node, Attr) and isinstance(node.base, Attr) and node.base.name == "config":
            if any(o is scheduler for o in options(node.base.base)):
                given = plain(constructor_argument(program, scheduler, node.name))
                if given is not MISSING:
                    known[id(node)] = given
    return known


def constructor_argument(program: Program, scheduler: Obj, name: str) -> Value | None:
    """What the constructor gets under a name."""
    if name in scheduler.kwargs:
        return scheduler.kwargs[name]
    init = scheduler.cls.find_method("__init__")
    if init is None:
        return None
    owner, node = init
    names = [a.arg for a in node.args.args[1:]]
    if name not in names:
        return None
    place = names.index(name)
    if place < len(scheduler.args):
        return scheduler.args[place]
    default = place - (len(names) - len(node.args.defaults))
    return (
        program.execution.interpreter.evaluate_global(node.args.defaults[default], owner.module)
        if default >= 0
        else None
    )


def walk_decided(value: Value, known: dict[int, object]) -> Iterator[Value]:
    """Yield what a value is made of; of a choice whose condition is known, only what is chosen."""

    def inner(node: Value) -> list[Value]:
        decided = isinstance(node, Choice) and node.cond is not None and len(node.options) == 2
        truth = plain(node.cond, known) if isinstance(node, Choice) and decided else MISSING
        return node.parts() if truth is MISSING else node.parts()[:1] if truth else node.parts()[1:]

    return reach([value], inner)


def is_copy(value: Value, grid: Call) -> bool:
    """The grid itself, or its entries copied."""
    while value is not grid:
        if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in _COPIES:
            value = value.func.base
        elif isinstance(value, Item) and isinstance(value.key, Slice):
            value = value.base
        else:
            return False
    return True


def ends(schedule: DefaultSchedule) -> tuple[float, float] | None:
    """Return the first and the last point of the grid."""
    first = _end(schedule, schedule.grid.argument(0, "start"))
    last = _end(schedule, schedule.grid.argument(1, "end", "stop"))
    return (first, last) if first is not None and last is not None else None


def _end(schedule: DefaultSchedule, value: Value | None) -> float | None:
    """A number, a number made of the first or last entry of another schedule, or such an entry."""
    if value is None:
        return None
    entries = {id(n): e for n in walk_decided(value, schedule.known) if (e := _entry(schedule, n)) is not None}
    return number(value, {**schedule.known, **entries})


def _entry(schedule: DefaultSchedule, value: Value) -> float | None:
    if not (isinstance(value, Item) and isinstance(value.key, Const) and value.key.value in (0, -1)):
        return None
    inner = next((n for n in walk_decided(value.base, schedule.known) if is_grid(n)), None)
    if inner is None:
        return None
    backwards = any(is_reversal(n) for n in walk_decided(value.base, schedule.known))
    at_start = (value.key.value == 0) is not backwards
    end = default_of(inner.argument(0, "start") if at_start else inner.argument(1, "end", "stop"))
    if not isinstance(end, (int, float)):
        return None
    copies = {id(n): float(end) for n in walk_decided(value.base, schedule.known) if is_copy(n, inner)}
    return number(value.base, {**schedule.known, **copies})


def is_reversal(node: Value) -> bool:
    """Whether a value is another from its end to its begin."""
    return (
        isinstance(node, Item)
        and isinstance(node.key, Slice)
        and node.key.step is not None
        and default_of(node.key.step) == -1
    )
