"""Which schedule is run, and how a step is taken."""

from __future__ import annotations

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.denoising import Denoising, is_sample, is_turn
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.schedule import Linear, base_grid, entry, turn_count, vector_of
from scaffold.inspect.program.values import (
    Attr,
    Call,
    Choice,
    Conf,
    Const,
    Elem,
    External,
    Func,
    Item,
    Obj,
    Op,
    Param,
    Slice,
    Slot,
    Value,
    class_name,
    depends,
    options,
    walk,
)

ORDER = 4
KEYS = (
    "answers.scheduler.class",
    "answers.scheduler.call",
    "answers.scheduler.arguments",
    "answers.scheduler.inline",
    "answers.scheduler.steps",
    "answers.scheduler.direction",
    "answers.scheduler.shift",
    "answers.scheduler.negated",
    "detail.scheduler.attribute",
    "detail.scheduler.kwargs_attribute",
    "detail.scheduler.step_location",
    "detail.scheduler.loop_location",
    "detail.scheduler.default_steps",
)


def answers(program: Program) -> dict[str, Fact]:
    """See ``KEYS``. ``inline`` is true only where no scheduler object is ever called in the loop: an inline
    update beside a call is the fallback for a missing scheduler object."""
    found = program.denoising
    if found is None:
        return {}
    facts: dict[str, Fact] = {
        "answers.scheduler.inline": fact(found.step is None, [_step_place(found), found.loop.at]),
        "detail.scheduler.step_location": fact(_spell(_step_place(found)), [_step_place(found)]),
        "detail.scheduler.loop_location": fact(_spell(found.loop.at), [found.loop.at]),
        "answers.scheduler.negated": _negated(found),
    }
    if found.step is not None:
        facts.update(_call_facts(program, found, found.step))
    else:
        facts["answers.scheduler.arguments"] = fact([], [_step_place(found)])
    facts.update(_schedule_facts(program, found))
    return facts


def _spell(place: Evidence | None) -> str | None:
    return f"{place.file}:{place.line}" if place else None


def _step_place(found: Denoising) -> Evidence | None:
    if found.step is not None:
        return found.step.at
    return found.inline.at if found.inline is not None else None


def _negated(found: Denoising) -> Fact:
    output = found.model_output
    if output is None:
        return UNKNOWN
    signs = {isinstance(o, Op) and (o.op == "neg" or _minus_one(o)) for o in options(output)}
    if len(signs) != 1:
        return UNKNOWN
    return fact(signs.pop(), [output.at, _step_place(found)])


def _minus_one(value: Op) -> bool:
    return value.op == "*" and any(isinstance(a, Const) and a.value in (-1, -1.0) for a in value.args)


def _call_facts(program: Program, found: Denoising, step: Call) -> dict[str, Fact]:
    receiver, method = _receiver(step)
    held = options(receiver) if receiver is not None else []
    name = next((n for r in held if (n := _held_name(program, r))), None)
    facts: dict[str, Fact] = {
        "answers.scheduler.call": fact(f"{name or 'scheduler'}.{method}", [step.at]),
        "answers.scheduler.arguments": fact(
            [_role(program, found, a, i, None) for i, a in enumerate(step.args)]
            + [_role(program, found, a, -1, k) for k, a in step.kwargs.items() if k != "**"],
            [step.at, found.loop.at],
        ),
    }
    if name is not None:
        facts["detail.scheduler.attribute"] = fact(name, [*(r.at for r in held), step.at])
    facts["answers.scheduler.class"] = _scheduler_class(held, step)
    spread = step.kwargs.get("**")
    if spread is not None:
        for attribute, value in program.pipeline.attrs.items():
            if depends(spread, value):
                facts["detail.scheduler.kwargs_attribute"] = fact(attribute, [value.at, step.at])
    return facts


def _receiver(step: Call) -> tuple[Value | None, str]:
    if isinstance(step.func, Attr):
        return step.func.base, step.func.name
    if isinstance(step.func, Func):
        return step.func.bound, step.func.name
    return None, step.name


def _held_name(program: Program, receiver: Value) -> str | None:
    if isinstance(receiver, Slot):
        return receiver.name
    return program.attribute_of(receiver)


def _scheduler_class(held: list[Value], step: Call) -> Fact:
    for receiver in held:
        name = class_name(receiver)
        if name is not None:
            return fact(name, [receiver.at, step.at])
    if held and all(isinstance(r, Slot) for r in held):
        return fact(None, [r.at for r in held] + [step.at])
    return Fact(None, tuple(e for e in [step.at] if e), "unknown")


def _role(program: Program, found: Denoising, value: Value, position: int, keyword: str | None) -> str:
    """What an argument of the step is, from where it comes."""
    sample, loop = found.sample, found.number
    if found.model_output is not None and value is found.model_output:
        return "model_output"
    if sample is not None and is_sample(value, sample):
        return "sample"
    if (isinstance(value, Param) and value.key.rpartition(".")[2] == "generator") or keyword == "generator":
        return "generator"
    if is_difference(value, loop):
        return "dt"
    if is_turn(value, loop):
        return "timestep" if fed_to_model(found, value) else "sigma" if _is_unit(value) else "timestep"
    if any(isinstance(n, Param) and n.key.rpartition(".")[2] == "generator" for n in walk(value)):
        return "generator"
    if keyword is not None:
        return keyword
    if sample is None and position in (0, 1, 2):
        return ("model_output", "timestep", "sample")[position]
    if isinstance(value, Call) and value.name in ("randn", "randn_like", "randn_tensor"):
        return "noise"
    return f"argument_{position}"


def is_difference(value: Value, loop: int) -> bool:
    """Whether a value is the difference of neighbouring entries of a schedule."""
    for option in options(value):
        node = option
        if isinstance(node, Item | Elem):
            vector = vector_of(node)
            if any(_neighbours(o) for o in options(vector)):
                return True
        if isinstance(node, Op) and node.op == "-" and len(node.args) == 2:
            if all(is_turn(a, loop) or _other_entry(a) for a in node.args):
                return True
        if isinstance(node, Op) and node.op in ("neg", "*") and any(is_difference(a, loop) for a in node.args):
            return True
        if isinstance(node, Call) and node.name == "abs" and node.args and is_difference(node.args[0], loop):
            return True
    return False


def _neighbours(vector: Value) -> bool:
    if isinstance(vector, Call) and vector.name == "diff":
        return True
    if isinstance(vector, Op) and vector.op == "neg":
        return _neighbours(vector.args[0])
    if not (isinstance(vector, Op) and vector.op == "-" and len(vector.args) == 2):
        return False
    return all(isinstance(a, Item) and isinstance(a.key, Slice) for a in vector.args)


def _other_entry(value: Value) -> bool:
    return isinstance(value, Item) or (isinstance(value, Choice) and any(_other_entry(o) for o in value.options))


def fed_to_model(found: Denoising, value: Value) -> bool:
    """Whether the model is given this very entry as its time."""
    if found.model_output is None:
        return False
    vectors = {id(vector_of(o)) for o in options(value)}
    for node in walk(found.model_output):
        if isinstance(node, Elem) and node.loop == found.number and id(vector_of(node)) in vectors:
            return True
        if isinstance(node, Item) and is_turn(node, found.number) and id(vector_of(node)) in vectors:
            return True
    return False


def _is_unit(value: Value) -> bool:
    vector = vector_of(value)
    grid = base_grid(vector)
    if grid is None:
        return isinstance(vector, Attr) and vector.name == "sigmas"
    ends = [entry(vector, grid, x) for x in (0.25, 0.75)]
    return all(e is not None and -0.01 <= e <= 1.01 for e in ends)


def _schedule_facts(program: Program, found: Denoising) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    count = turn_count(program.counter, found.loop.source)
    if count is None and found.step is not None:
        count = _count_from_arguments(program, found)
    if count is not None and count.factor == 1:
        facts["answers.scheduler.steps"] = fact(_spell_count(count), [found.loop.at, *count.places])
    for node in walk(found.loop.source) if found.loop.source is not None else ():
        if isinstance(node, Param) and node.key == "num_inference_steps":
            default = default_of(node)
            if type(default) is int:
                facts["detail.scheduler.default_steps"] = fact(default, [node.at])
            break
    vector = _schedule_vector(found)
    if vector is None:
        return facts
    grid = base_grid(vector)
    if grid is None:
        if any(isinstance(n, Attr) and n.name in ("timesteps", "sigmas") for n in walk(vector)):
            facts.update(_scheduler_schedule(program, vector))
        return facts
    start, end = (default_of(grid.argument(i, n)) for i, n in ((0, "start"), (1, "end")))
    if not isinstance(start, int | float) or not isinstance(end, int | float):
        return facts
    at_points = [entry(vector, grid, start + (end - start) * x) for x in (0.0, 0.25, 0.5, 0.75)]
    first, last = at_points[0], at_points[-1]
    if first is not None and last is not None and first != last:
        direction = "descending" if first > last else "ascending"
        facts["answers.scheduler.direction"] = fact(direction, [grid.at, vector.at])
    facts["answers.scheduler.shift"] = _shift(
        vector, grid, ascending=first is not None and last is not None and first < last
    )
    return facts


def _count_from_arguments(program: Program, found: Denoising) -> Linear | None:
    """The number of entries of the schedule that the step walks through."""
    step = found.step
    assert step is not None
    for argument in [*step.args, *step.kwargs.values()]:
        if is_turn(argument, found.number) and not is_difference(argument, found.number):
            count = program.counter.length(vector_of(argument))
            if count is not None and count.factor and not isinstance(found.loop.source, Call):
                return count
    return None


def _spell_count(count: Linear) -> str:
    return "n" if count.offset == 0 else f"n{count.offset:+d}"


def _schedule_vector(found: Denoising) -> Value | None:
    """The schedule that the loop walks: from the step's arguments, else from what the loop runs over."""
    if found.step is not None:
        for argument in [*found.step.args, *found.step.kwargs.values()]:
            if is_turn(argument, found.number) and not is_difference(argument, found.number):
                return vector_of(next(o for o in options(argument)))
    if found.loop.source is not None:
        vector = vector_of(found.loop.source)
        if base_grid(vector) is not None:
            return vector
    if found.inline is not None:
        for node in walk(found.inline):
            if isinstance(node, Item) and is_turn(node, found.number) and base_grid(node.base) is not None:
                return node.base
    return vector_of(found.loop.source) if found.loop.source is not None else None


def _scheduler_schedule(program: Program, vector: Value) -> dict[str, Fact]:
    """What is known of a schedule that a scheduler object makes."""
    facts: dict[str, Fact] = {}
    for node in walk(vector):
        if not (isinstance(node, Attr) and node.name in ("timesteps", "sigmas")):
            continue
        for scheduler in options(node.base):
            named = scheduler.func if isinstance(scheduler, Call) else None
            named = named.base if isinstance(named, Attr) else named
            if isinstance(named, External) and named.path.startswith("diffusers."):
                # Every scheduler of diffusers runs from noise to data on falling times.
                facts["answers.scheduler.direction"] = fact("descending", [scheduler.at, node.at], "likely")
            if isinstance(scheduler, Call | Obj) and "shift" in scheduler.kwargs:
                shift = default_of(scheduler.kwargs["shift"])
                if isinstance(shift, int | float):
                    facts["answers.scheduler.shift"] = fact(float(shift), [scheduler.at], "likely")
    return facts


def _shift(vector: Value, grid: Call, ascending: bool) -> Fact:
    """Solve the entries for s in s·t/(1+(s−1)·t); a schedule of another form has no shift.

    On rising times the same formula acts on 1−t, which is the inverse on t.
    """
    top = entry(vector, grid, 1.0)
    half = entry(vector, grid, 0.5)
    if top is None or half is None or top == 0:
        return UNKNOWN
    share = half / top
    if not 0 < share < 1:
        return UNKNOWN
    shift = share / (1 - share)
    for t in (0.1, 0.3, 0.8):
        value = entry(vector, grid, t)
        if value is None or abs(value / top - shift * t / (1 + (shift - 1) * t)) > 1e-9:
            return UNKNOWN
    shift = round(1 / shift if ascending else shift, 9)
    sources = [n for n in walk(vector, stop={id(grid)}) if isinstance(n, Const | Param | Conf)]
    given = [n for n in sources if _is_number(n, shift)]
    param = next((n for n in given if isinstance(n, Param)), None)
    places = [param.at] if param is not None else []
    places += [n.at for n in given if isinstance(n, Const)][:2]
    confidence = "likely" if any(isinstance(n, Conf) for n in given) and param is None else "certain"
    return Fact(shift, fact(None, [*places, vector.at]).evidence, confidence)  # type: ignore[arg-type]


def _is_number(value: Value, wanted: float) -> bool:
    known = default_of(value)
    return isinstance(known, int | float) and not isinstance(known, bool) and abs(known - wanted) < 1e-9
