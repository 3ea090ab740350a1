"""Which schedule is run, and how a step is taken."""

from __future__ import annotations

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.guidance import as_guidance
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, depends, options
from scaffold.inspect.program.conditions import taken_by_default
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.turns import is_sample, without_reshaping
from scaffold.inspect.program.updates import STEP_METHOD
from scaffold.inspect.program.values import Call, Const, Item, Obj, Op, Slot
from scaffold.inspect.step_arguments import role
from scaffold.source.values import Value

ORDER = 4
KEYS = (
    "answers.scheduler.class",
    "answers.scheduler.call",
    "answers.scheduler.arguments",
    "answers.scheduler.inline",
    "answers.scheduler.negated",
    "detail.scheduler.attribute",
    "detail.scheduler.kwargs_attribute",
    "detail.scheduler.keywords",
    "detail.scheduler.step_location",
    "detail.scheduler.loop_location",
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
        "answers.scheduler.negated": negated(found),
    }
    if found.step is not None:
        facts.update(_call_facts(program, found, found.step))
    elif _is_an_objects(program, found):
        # The update was followed into an object's own step: no scheduler's interface, and not written in the loop.
        del facts["answers.scheduler.inline"], facts["answers.scheduler.negated"]
    else:
        facts["answers.scheduler.arguments"] = fact([], [_step_place(found)])
    return facts


def _is_an_objects(program: Program, found: Denoising) -> bool:
    """Whether a turn hands the sample to the step of an object that is not a module, and the update stands there."""
    if found.sample is None:
        return False
    for record in program.trace.calls:
        if record.method != STEP_METHOD or record.loops[-1:] != (found.number,):
            continue
        holder = record.receiver
        if isinstance(holder, Obj) and not holder.cls.is_module and len(record.args) + len(record.kwargs) >= 3:
            if any(is_sample(a, found.sample) for a in record.arguments):
                return True
    return False


def _spell(place: Evidence | None) -> str | None:
    return f"{place.file}:{place.line}" if place else None


def _step_place(found: Denoising) -> Evidence | None:
    if found.step is not None:
        return found.step.at
    return found.inline.at if found.inline is not None else None


_NEGATIONS = frozenset({"neg", "neg_", "negative", "negative_"})


def negated(found: Denoising) -> Fact:
    """Whether the prediction's sign is turned on the way to the step."""
    output = found.model_output
    if output is None:
        return UNKNOWN
    signs = {_is_negative(o) for o in options(output)}
    if len(signs) != 1 or None in signs:
        return UNKNOWN
    return fact(signs.pop(), [output.at, _step_place(found)])


def _is_negative(value: Value, depth: int = 0) -> bool | None:
    """Whether a prediction's sign is turned on the way to the step; None where the parts of guidance differ in it."""
    for _ in range(8):
        if isinstance(value, Op) and (value.op == "neg" or _minus_one(value)):
            return True
        if isinstance(value, Call) and (value.name in _NEGATIONS or (value.name == "mul" and _minus_one(value))):
            return True
        guidance = as_guidance(value)
        if guidance is not None and depth < 4:
            sides = [o for v in (guidance.uncond, guidance.cond) for o in options(v)]
            signs = {_is_negative(side, depth + 1) for side in sides}
            return signs.pop() if len(signs) == 1 else None
        inner = without_reshaping(value.base if isinstance(value, Item) and isinstance(value.base, Call) else value)
        if inner is value or (isinstance(value, Item) and inner is value.base):
            break
        value = inner
    return False


def _minus_one(value: Op | Call) -> bool:
    numbers = [a.value for a in value.args if isinstance(a, Const)]
    if isinstance(value, Op) and value.op == "-":
        return isinstance(value.args[0], Const) and value.args[0].value == 0
    return (isinstance(value, Call) or value.op == "*") and any(number in (-1, -1.0) for number in numbers)


def _call_facts(program: Program, found: Denoising, step: Call) -> dict[str, Fact]:
    receiver = step.receiver
    held = options(receiver)
    name = next((n for r in held if (n := _held_name(program, r))), None)
    facts: dict[str, Fact] = {
        "answers.scheduler.call": fact(f"{name or 'scheduler'}.{step.name}", [step.at]),
        "answers.scheduler.arguments": fact(_roles(program, found, step), [step.at, found.loop.at]),
    }
    if name is not None:
        facts["detail.scheduler.attribute"] = fact(name, [*(r.at for r in held), step.at])
    facts["answers.scheduler.class"] = _scheduler_class(_made(program, receiver, name), step)
    keywords = [None] * len(step.args) + [k for k in step.kwargs if k != "**"]
    facts["detail.scheduler.keywords"] = fact(keywords, [step.at])
    spread = step.kwargs.get("**")
    if spread is not None:
        for attribute, value in program.pipeline.attrs.items():
            if depends(spread, value):
                facts["detail.scheduler.kwargs_attribute"] = fact(attribute, [value.at, step.at])
    return facts


def _roles(program: Program, found: Denoising, step: Call) -> list[str]:
    """The roles of all arguments; a second time of the same turn is known by its keyword alone."""
    keywords = [k for k in step.kwargs if k != "**"]
    roles = [role(program, found, a, i, None) for i, a in enumerate(step.args)]
    roles += [role(program, found, step.kwargs[k], -1, k) for k in keywords]
    names = [f"argument_{i}" for i in range(len(step.args))] + keywords
    once = ("timestep", "sigma", "sample", "model_output", "generator")
    return [names[i] if r in once and r in roles[:i] else r for i, r in enumerate(roles)]


def _held_name(program: Program, receiver: Value) -> str | None:
    if isinstance(receiver, Slot):
        return receiver.name
    return program.attribute_of(receiver)


def _made(program: Program, receiver: Value | None, name: str | None) -> list[Value]:
    """What a scheduler may be: a step that is followed names one object of those that its attribute may hold."""
    whole = program.pipeline.attrs.get(name, receiver) if name is not None else receiver
    return taken_by_default(whole) if whole is not None else []


def _scheduler_class(held: list[Value], step: Call) -> Fact:
    """The class that all constructions name; unknown where a condition that nothing decides chooses between classes."""
    named = {name: receiver for receiver in reversed(held) if (name := class_name(receiver)) is not None}
    if len(named) == 1:
        name, receiver = named.popitem()
        return fact(name, [receiver.at, step.at])
    if held and all(isinstance(r, Slot) for r in held):
        return fact(None, [r.at for r in held] + [step.at])
    return Fact(None, tuple(e for e in [step.at] if e), "unknown")
