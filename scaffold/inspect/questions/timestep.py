"""How the denoiser turns its time into features."""

from __future__ import annotations

import re

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, options, walk
from scaffold.inspect.program.numeric import default_of, number
from scaffold.inspect.program.turns import is_turn, without_reshaping
from scaffold.inspect.program.values import Call, Elem, Item, Obj, Op, Param, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.kept_modules import kept_calls
from scaffold.source.values import Value

ORDER = 13
KEYS = (
    "detail.timestep.max_period",
    "detail.timestep.scale",
    "detail.timestep.order",
    "detail.timestep.attribute",
)
MAX_GIVEN = 4
_FEATURES = re.compile(r"timestep|time_?embed|fourier|sinusoid", re.IGNORECASE)


def answers(program: Program) -> dict[str, Fact]:
    embedder = _embedder(program) or _kept_embedder(program)
    if embedder is None:
        return {}
    obj, method, given = embedder
    facts: dict[str, Fact] = {}
    name = _attribute(program, obj)
    if name is not None:
        facts["detail.timestep.attribute"] = fact(name, [obj.at])
    return facts | features(program, obj, method, given)


def features(program: Program, embedder: Obj, method: str, given: Value) -> dict[str, Fact]:
    """Order, period and scale of the features that a method of a module makes of the time that it is given."""
    found = embedder.cls.find_method(method)
    parameters = [a.arg for a in found[1].args.args[1:]] if found is not None else []
    if not parameters:
        return {}
    time = Param("argument", parameters[0])
    result = program.invoke(embedder, method, {parameters[0]: time})
    for node in walk(result) if result is not None else ():
        if isinstance(node, Call) and node.name in ("cat", "concat", "stack") and node.args:
            parts = node.args[0].items if isinstance(node.args[0], Seq) else []
            waves = [p for p in parts if isinstance(p, Call) and p.name in ("cos", "sin")]
            if len(waves) == 2 and {w.name for w in waves} == {"cos", "sin"}:
                return _features(node, waves, time, given)
    return {}


def _features(node: Call, waves: list[Call], time: Value, given: Value) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"detail.timestep.order": fact([w.name for w in waves], [node.at])}
    inner = _argument(waves[0])
    if inner is None:
        return facts
    for part in walk(inner):
        if isinstance(part, Call) and part.name == "log" and part.args:
            period = default_of(part.args[0])
            if isinstance(period, (int, float)):
                facts["detail.timestep.max_period"] = fact(float(period), [part.at, part.args[0].at])
    if isinstance(inner, Op) and inner.op == "*":
        side = next((a for a in inner.args if any(n is time for n in walk(a))), None)
        own = number(side, {id(time): 1.0}) if side is not None else None
        before = _prescale(given)
        if own is not None and before is not None:
            facts["detail.timestep.scale"] = fact(own * before, [inner.at, given.at])
    return facts


def _argument(wave: Call) -> Value | None:
    if wave.args:
        return wave.args[0]
    base = getattr(wave.func, "base", None)
    return base if isinstance(base, Value) else None


def _prescale(given: Value) -> float | None:
    """The factor put on the schedule's entry before the embedder sees it; None where it is not plain."""
    value = given
    factor = 1.0
    for _ in range(8):
        value = options(value)[0]
        if isinstance(value, Elem):
            return factor
        if isinstance(value, Op) and value.op in ("*", "/") and len(value.args) == 2:
            left, right = value.args
            if isinstance(left, Seq):
                value = left.items[0]
                continue
            known = default_of(right)
            if not isinstance(known, (int, float)):
                return None
            factor = factor * known if value.op == "*" else factor / known
            value = left
        elif isinstance(value, Seq) and value.items:
            value = value.items[0]
        elif isinstance(value, Call) and value.args and value.name in ("tensor", "as_tensor", "full", "expand"):
            value = value.args[-1] if value.name == "full" else value.args[0]
        else:
            return factor if not isinstance(value, Op) else None
    return None


def _embedder(program: Program) -> tuple[Obj, str, Value] | None:
    """The module of the denoiser that is given the time itself and embeds it; nothing where several do."""
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None:
        return None
    found: dict[int, tuple[Obj, str, Value]] = {}
    passed: dict[int, Value] = {}
    for record in list(program.trace.calls):
        if loop.number not in record.loops or not isinstance(record.receiver, Obj):
            continue
        if record.receiver is denoiser.receiver or record.receiver.root is not None:
            continue
        given = record.arguments
        times = [v if is_turn(v, loop.number) else passed[_base(v)] for v in given if _is_time(v, loop.number, passed)]
        if len(times) != 1 or len(given) > MAX_GIVEN or len(record.callers) <= len(denoiser.record.callers):
            continue
        if len(given) > 2 and not _is_time(given[0], loop.number, passed):
            # What embeds something else at a time.
            continue
        if _embeds(program, record.receiver, len(given) > 2):
            found.setdefault(id(record.receiver), (record.receiver, record.method, times[0]))
            if len(given) <= 2:
                break
        else:
            # It arranges times, perhaps one for each image, and hands them on.
            passed[id(record.result)] = times[0]
    return next(iter(found.values())) if len(found) == 1 else None


def _is_time(value: Value, loop: int, passed: dict[int, Value]) -> bool:
    return is_turn(value, loop) or _base(value) in passed


def _base(value: Value) -> int:
    """The ``id`` of what a value is an item of."""
    return id(value.base) if isinstance(value, Item) else id(value)


def _embeds(program: Program, module: Obj, named: bool) -> bool:
    """Whether a module has parts or weights to embed with, or makes waves; ``named``: parts that are named for it."""
    program.execution.attributes.ensure_ready(module)
    held = [option for value in module.attrs.values() for option in options(value)]
    names = [name for option in held if (name := class_name(option)) is not None]
    names += [name for name, value in module.attrs.items() if any(isinstance(o, (Obj, Call)) for o in options(value))]
    if any(_FEATURES.search(name) for name in names):
        return True
    if named:
        return False
    if any(o.cls.is_module if isinstance(o, Obj) else _is_built(o) for o in held):
        return True
    called = {node.name for node in _nodes(program, module) if isinstance(node, Call)}
    return {"sin", "cos"} <= called


def _is_built(value: Value) -> bool:
    """Whether a value is a module or a parameter of a library."""
    return isinstance(value, Call) and value.name[:1].isupper()


def _nodes(program: Program, module: Obj) -> list[Value]:
    result = program.invoke(module, "forward", {})
    return list(walk(result)) if result is not None else []


def _kept_embedder(program: Program) -> tuple[Obj, str, Value] | None:
    """The same where the pipeline keeps it in a dictionary, outside of the denoiser."""
    loop = program.denoising
    for call in kept_calls(program):
        for value in call.arguments:
            if loop is not None and call.module is not None and is_turn(without_reshaping(value), loop.number):
                return call.module, "forward", without_reshaping(value)
    return None


def _attribute(program: Program, obj: Obj) -> str | None:
    denoiser = find_denoiser(program)
    for root in options(denoiser.receiver) if denoiser and denoiser.receiver is not None else []:
        if isinstance(root, Obj):
            for name, held in root.attrs.items():
                if any(o is obj for o in options(held)):
                    return name
    return None
