"""How the denoiser turns its time into features."""

from __future__ import annotations

import re

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, options, walk
from scaffold.inspect.program.numeric import default_of, number
from scaffold.inspect.program.turns import is_turn, without_reshaping
from scaffold.inspect.program.values import Call, Elem, Item, Obj, Op, Param, Seq
from scaffold.inspect.questions import timestep
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.kept_modules import kept_calls
from scaffold.source.values import Func, Value

ORDER = 13
KEYS = (
    "detail.timestep.max_period",
    "detail.timestep.scale",
    "detail.timestep.order",
    "detail.timestep.attribute",
    "detail.timestep_token.id",
    "detail.time.denoiser",
    "detail.time.step",
)

MAX_GIVEN = 4
_FEATURES = re.compile(r"timestep|time_?embed|fourier|sinusoid", re.IGNORECASE)


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_timestep(program), **_timestep_token(program), **_time_input(program)}


def _timestep(program: Program) -> dict[str, Fact]:
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


# A token whose embedding the denoiser replaces by the embedding of the time.


def _timestep_token(program: Program) -> dict[str, Fact]:
    """The token's id, and the features that its embedder makes of the time where no other question found them.

    Established where the denoiser's ``forward`` chooses between two embeddings by ``ids == id`` and one of them is
    what a module of its own makes of the time.
    """
    denoiser = find_denoiser(program)
    if denoiser is None or denoiser.time_name is None:
        return {}
    for receiver in options(denoiser.receiver):
        if not isinstance(receiver, Obj):
            continue
        before = len(program.trace.calls)
        program.invoke(receiver, denoiser.record.method, {})
        for record in program.trace.calls[before:]:
            if record.method == "where" and isinstance(record.result, Call) and len(record.args) == 3:
                found = _chosen(record.result, denoiser.time_name)
                if found is not None:
                    token, at, embedder, method = found
                    facts = {"detail.timestep_token.id": fact(token, [record.at, at])}
                    held = {
                        name for name, value in receiver.attrs.items() if any(o is embedder for o in options(value))
                    }
                    if len(held) == 1:
                        facts["detail.timestep.attribute"] = fact(held.pop(), [embedder.at])
                    # The time itself goes in; how it follows from the noise level is another question.
                    return facts | timestep.features(program, embedder, method, Elem(receiver, -1))
    return {}


def _chosen(where: Call, time: str) -> tuple[int, Evidence | None, Obj, str] | None:
    """Id and embedder of ``where(ids == id, embedder(time), …)``."""
    for node in walk(where.args[0]):
        if isinstance(node, Op) and node.op == "==" and isinstance(node.args[0], Param):
            token = default_of(node.args[1])
            embedded = next((c for c in walk(where.args[1]) if _is_embedding(c, time)), None)
            if type(token) is int and isinstance(embedded, Call) and isinstance(embedded.func, Func):
                embedder = embedded.func.bound
                if isinstance(embedder, Obj):
                    return token, node.args[1].at, embedder, embedded.func.name
    return None


def _is_embedding(value: Value, time: str) -> bool:
    """A call of a module on the denoiser's time."""
    if not (isinstance(value, Call) and isinstance(value.func, Func) and isinstance(value.func.bound, Obj)):
        return False
    return any(isinstance(n, Param) and n.key == time for a in [*value.args, *value.kwargs.values()] for n in walk(a))


# What the denoiser and the scheduler's step are told of a turn's time, for a noise level in [0, 1].

_UNIT = 1000.0


def _time_input(program: Program) -> dict[str, Fact]:
    """``sigma``, ``1 - sigma`` or ``1000 sigma``, where the loop runs over 1000 times the noise level.

    That it does is told by an argument that is 1 at 0 and 0 at 1000, or the reverse: no other unit gives that.
    """
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None or denoiser.time_name is None or loop.step is None:
        return {}
    given = denoiser.record.named
    told = _form(given.get(denoiser.time_name))
    if told not in ("sigma", "1 - sigma"):
        return {}
    facts = {"detail.time.denoiser": fact(told, [given[denoiser.time_name].at])}
    for argument in [*loop.step.args, *loop.step.kwargs.values()]:
        if is_turn(argument, loop.number):
            form = _form(argument)
            if form is not None:
                facts["detail.time.step"] = fact(form, [argument.at, loop.step.at])
            break
    return facts


def _form(value: Value | None) -> str | None:
    value = without_reshaping(value) if value is not None else None
    entry = _entry(value)
    if value is None or entry is None:
        return None
    ends = (number(value, {id(entry): 0.0}), number(value, {id(entry): _UNIT}))
    middle = number(value, {id(entry): _UNIT / 4})
    forms = {(0.0, 0.25, 1.0): "sigma", (1.0, 0.75, 0.0): "1 - sigma", (0.0, _UNIT / 4, _UNIT): "1000 sigma"}
    return forms.get((ends[0], middle, ends[1])) if None not in (*ends, middle) else None  # type: ignore[arg-type]


def _entry(value: Value | None) -> Elem | None:
    """The turn's entry that an expression is made of."""
    for option in options(value):
        if isinstance(option, Elem):
            return option
        if isinstance(option, Op):
            return next((e for a in option.args if (e := _entry(without_reshaping(a))) is not None), None)
    return None
