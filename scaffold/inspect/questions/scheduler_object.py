"""The scheduler object behind the loop: its class, how it is made and asked, and what schedule that gives."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.inspect.asked_shift import shift_of
from scaffold.inspect.facts import Confidence, Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.default_schedule import DefaultSchedule, default_schedule, ends
from scaffold.inspect.program.held_scheduler import LOADERS, HeldScheduler, held_scheduler
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.schedule import SHIFT_PROBES, STEPS_KEY, Linear, solved_shift
from scaffold.inspect.program.spelling import STEPS, spell
from scaffold.inspect.program.values import Attr, Call, Obj, Param
from scaffold.source.values import Value

ORDER = 7
KEYS = (
    "detail.scheduler.origin",
    "detail.scheduler.made",
    "detail.scheduler.asked",
    "detail.scheduler.levels",
    "detail.schedule.first_level",
    "detail.schedule.last_level",
)
_HARMLESS = frozenset(("set_timesteps", "step", "set_begin_index", "scale_model_input", "scale_noise", "add_noise"))
_SIZES = (1024.0, 4096.0)


def answers(program: Program) -> dict[str, Fact]:
    """Recipe of the schedule.

    ``made`` is ``{"folder", "arguments", "assigned", "configured"}``: where its file is (None without one), what the
    constructor gets (where there is no file), attributes and settings that are put in afterwards. ``asked`` are the
    arguments of ``set_timesteps``. Values are expressions over ``num_inference_steps``, ``latent_size`` and
    ``scheduler``. ``levels`` says which noise levels result. ``first_level`` is the level of the first turn where it
    is below 1, ``last_level`` that of the last one where it is 0 and the turn changes nothing.
    """
    return {key: found for key, found in object_schedule(program).items() if key in KEYS}


@once
def object_schedule(program: Program) -> dict[str, Fact]:
    """Return the same with steps, direction and shift."""
    held = held_scheduler(program)
    if held is None:
        return {}
    made = held.made[0]
    facts = {"detail.scheduler.origin": fact(_origin(held, program.source.packages), [made.at])}
    default = default_schedule(program, held)
    facts.update(_numbers(program, held, default))
    setup = _setup(program, held)
    levels = _levels(held, default)
    if setup is not None and levels is not None:
        facts["detail.scheduler.made"] = setup
        facts["detail.scheduler.asked"] = _asked(program, held)
        facts["detail.scheduler.levels"] = fact(levels, [made.at])
        grid = facts["detail.scheduler.asked"].value or {"sigmas": None}
        if setup.value["assigned"].get("sigma_min") == "0.0" and held.known is not None and "sigmas" not in grid:
            facts["detail.schedule.last_level"] = fact(0.0, setup.evidence)
    return {k: f for k, f in facts.items() if f.value is not None}


def _origin(held: HeldScheduler, packages: tuple[str, ...]) -> dict[str, Any]:
    if held.known is not None:
        return {"kind": "diffusers", "module": "diffusers", "class": held.known.name}
    module, _, name = held.path.rpartition(".")
    package = module.partition(".")[0]
    return {"kind": "source" if package in packages else package, "module": module, "class": name}


def _numbers(program: Program, held: HeldScheduler, default: DefaultSchedule | None) -> dict[str, Fact]:
    made, asked = held.made[0], held.asked
    places = [made.at, asked.at if asked is not None else None]
    facts: dict[str, Fact] = {}
    count = _count(program, held)
    if count is not None and count.factor == 1:
        # A class of the source may walk through another number of times than it is asked for.
        certainty: Confidence = "certain" if held.known is not None and count.sure else "likely"
        facts["answers.scheduler.steps"] = fact(count.text, [*places, *count.places], certainty)
    from_file = any(_is_loaded(m) for m in held.made)
    sure: Confidence = "likely" if from_file else "certain"
    if held.known is not None:
        facts["answers.scheduler.direction"] = fact(held.known.direction, places, sure)
        shift = _constant_shift(program, held)
        if shift is not None:
            facts["answers.scheduler.shift"] = fact(shift, places, "likely")
    elif default is not None:
        bounds = ends(default)
        first, last = (default.at(b, _SIZES[0]) for b in bounds) if bounds is not None else (None, None)
        if first is not None and last is not None and first != last:
            way = "descending" if first > last else "ascending"
            facts["answers.scheduler.direction"] = fact(way, [default.grid.at, *places], sure)
            unit = 1000.0 if max(first, last) > 1.5 else 1.0
            elsewhere = default.at(bounds[0], _SIZES[1]) if bounds is not None else None
            if way == "descending" and first < unit and first == elsewhere and not default.opaque:
                facts["detail.schedule.first_level"] = fact(first / unit, [default.grid.at, *places], sure)
            facts.update(_shift(default, way == "ascending", [*places, default.grid.at], sure, held.alone))
    return facts


def _count(program: Program, held: HeldScheduler) -> Linear | None:
    """The number of turns that ``set_timesteps`` is asked for."""
    if held.asked is None:
        return None
    given = _arguments(held)
    count = program.counter.scalar(given.get(STEPS_KEY))
    levels = given.get("sigmas")
    if isinstance(levels, Param) and held.cls is None:
        levels = levels.default  # a class of the source may make another schedule of them
    return count or program.counter.length(levels)


def _arguments(held: HeldScheduler) -> dict[str, Value]:
    """The arguments of ``set_timesteps`` by name, the device and defaults left out."""
    asked = held.asked
    assert asked is not None
    names = held.known.parameters if held.known is not None else tuple(asked.bound)
    given = dict(zip(names, asked.args, strict=False)) | {k: v for k, v in asked.kwargs.items() if k != "**"}
    return {k: v for k, v in given.items() if k != "device"}


def _constant_shift(program: Program, held: HeldScheduler) -> float | None:
    """What every construction without a file gives; a file may say something else."""
    given = [m for m in held.made if isinstance(m, (Call, Obj)) and not _is_loaded(m)]
    shifts = {shift_of(program, m)[0] for m in given}
    dynamic = any(default_of(m.kwargs.get("use_dynamic_shifting")) not in (MISSING, False) for m in given)
    return shifts.pop() if len(shifts) == 1 and not dynamic else None


def noise_falls(program: Program, held: HeldScheduler) -> bool | None:
    """Whether the object's times fall with the noise; None where it is not known."""
    if held.known is not None:
        return held.known.direction == "descending"
    default = default_schedule(program, held)
    bounds = ends(default) if default is not None else None
    if default is None or bounds is None:
        return None
    first, last = (default.at(b, _SIZES[0]) for b in bounds)
    return None if first is None or last is None or first == last else first > last


def _shift(
    default: DefaultSchedule, ascending: bool, places: list[Evidence | None], sure: Confidence, alone: bool
) -> dict[str, Fact]:
    """Solve the times for s in s·t/(1+(s-1)·t), t the noise level; for two sizes of the sample."""
    found = [_solved(default, size, ascending) for size in _SIZES]
    if None in found or default.opaque or not alone:
        return {}
    if default.sizes and found[0] != found[1]:
        return {}
    return {"answers.scheduler.shift": fact(found[0], places, sure)}


def _solved(default: DefaultSchedule, size: float, ascending: bool) -> float | None:
    bounds = ends(default)
    for scale in (1.0, 1000.0):
        if bounds is None or not 0.9 * scale <= max(bounds) <= scale:
            continue  # the grid has another unit
        unit = default.at(scale, size)
        points = [scale * ((1 - t) if ascending else t) for t in SHIFT_PROBES]
        values = [value / unit if unit and (value := default.at(p, size)) is not None else None for p in points]
        shift = solved_shift([1 - v if ascending and v is not None else v for v in values])
        if shift is not None:
            return round(shift, 9)
    return None


def _is_loaded(made: Value) -> bool:
    if isinstance(made, Obj):
        return made.json_file is not None
    return isinstance(made, Call) and made.name in LOADERS


def _levels(held: HeldScheduler, default: DefaultSchedule | None) -> str | None:
    """Which noise levels the object holds: its own, or what is left of times that rise from 0 to 1."""
    if held.known is not None or held.above is not None or (default is not None and default.levels is not None):
        return "scheduler.sigmas[:-1]"
    if default is None:
        return None
    bounds = ends(default)
    times = [default.at(b, _SIZES[0]) for b in bounds] if bounds is not None else []
    return "1 - scheduler.timesteps" if times == [0.0, 1.0] else None


def _setup(program: Program, held: HeldScheduler) -> Fact | None:
    """How the object is made; None where some of it has no expression."""
    folder: str | None = None
    arguments: dict[str, str] | None = None
    places: list[Evidence | None] = []
    for made in held.made:
        places.append(made.at)
        if not isinstance(made, (Call, Obj)):
            return None
        if _is_loaded(made):
            given = made.kwargs.get("subfolder")
            found = _folder(given) if given is not None else ""
            if not isinstance(found, str):
                return None
            folder = found
            continue
        if made.args or "**" in made.kwargs:
            return None
        texts = {name: spell(value, {}) for name, value in made.kwargs.items()}
        if None in texts.values():
            return None
        arguments = {name: str(text) for name, text in texts.items()}
    assigned: dict[str, str] = {}
    configured: dict[str, str] = {}
    for write in program.trace.writes:
        into_config = write.item and isinstance(write.base, Attr) and write.base.name == "config"
        base = write.base.base if into_config and isinstance(write.base, Attr) else write.base
        if not any(o is m for o in options(base) for m in (*held.made, held.receiver)):
            continue
        text = spell(write.value, {})
        if text is None or (write.item and not into_config):
            return None
        (configured if into_config else assigned)[write.name] = text
        places.append(write.at)
    if _other_calls(program, held):
        return None
    value = {"folder": folder, "arguments": arguments, "assigned": assigned, "configured": configured}
    return fact(value, places)


def _folder(given: Value) -> object:
    """A literal folder, or the one that stands in for an option of the engine that nobody gives."""
    known = default_of(given)
    if known is MISSING and isinstance(given, Call) and isinstance(given.func, Attr) and given.func.name == "get":
        known = default_of(given.args[1]) if len(given.args) == 2 else MISSING
    return known


def _other_calls(program: Program, held: HeldScheduler) -> bool:
    """Whether the pipeline calls something on the scheduler that may change its schedule."""
    for record in program.trace.calls:
        if record.method.startswith("set_") and record.method not in _HARMLESS:
            if any(o is m for o in options(record.held_by) for m in (*held.made, held.receiver)):
                return True
    return False


def _asked(program: Program, held: HeldScheduler) -> Fact:
    """The arguments of ``set_timesteps``; unknown where one of them has no expression or none counts the steps."""
    if held.asked is None:
        return Fact(None, (), "unknown")
    sample = program.denoising.sample if program.denoising is not None else None
    names = {id(v): "scheduler" for v in (*held.made, held.receiver)}
    texts = {n: spell(v, names, sample.init if sample is not None else None) for n, v in _arguments(held).items()}
    texts = {n: t for n, t in texts.items() if t != "None"}
    if None in texts.values() or not any(STEPS in str(t) for t in texts.values()):
        return Fact(None, (), "unknown")
    return fact({n: ast.unparse(ast.parse(str(t), mode="eval")) for n, t in texts.items()}, [held.asked.at])
