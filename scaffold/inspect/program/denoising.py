"""Finds the denoising loop: the one that feeds a variable to a model and updates it from what comes out."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.trace import CallRecord, LoopRecord, Trace
from scaffold.inspect.program.values import (
    Attr,
    Call,
    Carried,
    Choice,
    Elem,
    External,
    Func,
    Index,
    Item,
    Obj,
    Op,
    Value,
)

SHAPE_METHODS = frozenset(
    [
        "unsqueeze",
        "squeeze",
        "view",
        "reshape",
        "permute",
        "transpose",
        "expand",
        "repeat",
        "flatten",
        "unflatten",
        "movedim",
        "chunk",
    ]
)
_JOINS = frozenset(("cat", "stack", "concat", "concatenate"))
STEP_METHOD = "step"


@dataclass(eq=False)
class Denoising:
    """The loop, the sample it carries, and how a turn updates it.

    ``step`` is the call that updates the sample, ``inline`` the expression that does; both are set where the
    pipeline chooses between them.
    """

    loop: LoopRecord
    sample: Carried | None
    step: Call | None
    record: CallRecord | None
    inline: Op | None
    model_output: Value | None

    @property
    def number(self) -> int:
        return self.loop.number


def find_denoising(trace: Trace) -> list[Denoising]:
    """Return the denoising loops, the one that the default path takes first."""
    records = {id(r.result): r for r in trace.calls}
    found: list[Denoising] = []
    for loop in trace.loops.values():
        candidates = [
            c for variable in loop.carried.values() if (c := _from_variable(loop, variable, records)) is not None
        ]
        best = max(candidates, key=_rank, default=None) or _from_calls(loop, trace)
        if best is not None:
            found.append(best)
    return sorted(found, key=lambda d: (d.step is None, len(d.loop.conditions), -d.number))


def _rank(found: Denoising) -> tuple[bool, bool]:
    return (found.step is not None, found.inline is not None)


def _from_variable(loop: LoopRecord, variable: Carried, records: dict[int, CallRecord]) -> Denoising | None:
    if variable.final is None:
        return None
    step: Call | None = None
    inline: Op | None = None
    for option in options(variable.final):
        core = _unwrap(option)
        if isinstance(core, Call) and step is None and _is_step(core, variable):
            step = core
        elif isinstance(core, Op) and inline is None and _is_update(core, variable):
            inline = core
    if step is None and inline is None:
        return None
    output = _step_output(step, variable) if step is not None else _inline_output(inline, variable)
    return Denoising(loop, variable, step, records.get(id(step)) if step is not None else None, inline, output)


def _unwrap(value: Value) -> Value:
    """Look through ``.prev_sample``, ``[0]`` and reshaping to what was computed."""
    for _ in range(12):
        if (isinstance(value, Attr) and isinstance(value.base, Call | Choice | Item)) or isinstance(value, Item):
            value = value.base
        elif isinstance(value, Call) and (inner := reshaped(value)) is not None:
            value = inner
        elif isinstance(value, Choice):
            calls = [_unwrap(o) for o in value.options]
            value = next((c for c in calls if isinstance(c, Call | Op)), value.options[0])
        else:
            break
    return value


def reshaped(value: Call) -> Value | None:
    """The tensor whose entries a call only rearranges."""
    if isinstance(value.func, Attr) and value.name in SHAPE_METHODS:
        return value.func.base
    if value.name == "einsum" and len(value.args) == 2:
        return value.args[1]
    if value.name in (*SHAPE_METHODS, "rearrange") and isinstance(value.func, External) and value.args:
        return value.args[0]
    return None


def is_sample(value: Value, variable: Value) -> bool:
    """Whether a value is the variable itself, reshaped, joined with itself or scaled for the model."""
    for option in options(value):
        node = option
        for _ in range(10):
            if node is variable:
                return True
            if isinstance(node, Call) and (inner := reshaped(node)) is not None:
                node = inner
            elif isinstance(node, Call) and node.name == "scale_model_input" and node.args:
                node = node.args[0]
            elif isinstance(node, Call) and node.name in _JOINS and node.args:
                parts = node.args[0].parts() or [node.args[0]]
                if any(is_sample(p, variable) for p in parts[:4]):
                    return True
                break
            elif isinstance(node, Item):
                node = node.base
            elif isinstance(node, Op) and node.op in ("*", "/") and len(node.args) == 2:
                node = node.args[0]
            elif isinstance(node, Choice):
                return any(is_sample(o, variable) for o in node.options)
            else:
                break
    return False


def _through_model(value: Value, variable: Carried) -> bool:
    """Whether a value depends on the variable through a call, as a prediction does."""
    if is_sample(value, variable):
        return False
    found = called = False
    for node in walk(value):
        found = found or node is variable
        called = called or isinstance(node, Call)
        if found and called:
            return True
    return False


def _arguments(call: Call) -> list[Value]:
    return [*call.args, *(v for k, v in call.kwargs.items() if k != "**")]


def _is_step(call: Call, variable: Carried) -> bool:
    """A method that takes the sample and a prediction made from it, and is not itself the model."""
    if not isinstance(call.func, Attr | Func):
        return False
    receiver = call.func.base if isinstance(call.func, Attr) else call.func.bound
    if receiver is not None and any(isinstance(o, Obj) and o.cls.is_module for o in options(receiver)):
        return False
    given = _arguments(call)
    if call.name != STEP_METHOD and not any(is_turn(a, variable.loop) for a in given):
        return False
    has_sample = any(is_sample(a, variable) for a in given)
    has_output = any(_through_model(a, variable) for a in given)
    return has_sample and has_output


def _step_output(step: Call | None, variable: Carried) -> Value | None:
    if step is None:
        return None
    return next((a for a in _arguments(step) if _through_model(a, variable)), None)


def _terms(value: Value, sign: int = 1) -> list[tuple[Value, int]]:
    """The summands of an expression."""
    if isinstance(value, Op) and value.op in ("+", "-") and len(value.args) == 2:
        return _terms(value.args[0], sign) + _terms(value.args[1], sign if value.op == "+" else -sign)
    return [(value, sign)]


def _is_update(value: Op, variable: Carried) -> bool:
    """``x ± step·prediction``: the sample is one summand, the others come from the model."""
    terms = [t for t, _ in _terms(value)]
    return (
        len(terms) > 1
        and any(is_sample(t, variable) for t in terms)
        and any(_through_model(t, variable) for t in terms)
    )


def _inline_output(value: Op | None, variable: Carried) -> Value | None:
    if value is None:
        return None
    for term, _ in _terms(value):
        if not _through_model(term, variable):
            continue
        factors = term.args if isinstance(term, Op) and term.op in ("*", "/") else [term]
        return next((f for f in factors if _through_model(f, variable)), term)
    return None


def _from_calls(loop: LoopRecord, trace: Trace) -> Denoising | None:
    """A loop that keeps its sample in an attribute still calls a scheduler's ``step``."""
    for record in trace.calls:
        if loop.number not in record.loops or record.method != STEP_METHOD:
            continue
        if isinstance(record.result, Call) and len(record.args) + len(record.kwargs) >= 3:
            output = record.args[0] if record.args else record.kwargs.get("model_output")
            return Denoising(loop, None, record.result, record, None, output)
    return None


def is_turn(value: Value, loop: int) -> bool:
    """Whether a value is the schedule's entry of a loop's turn."""
    for option in options(value):
        node: Value = option
        for _ in range(8):
            if isinstance(node, Elem) and node.loop == loop:
                return True
            if isinstance(node, Item) and any(isinstance(n, Index) and n.loop == loop for n in walk(node.key)):
                return True
            if isinstance(node, Call) and isinstance(node.func, Attr) and node.name in SHAPE_METHODS:
                node = node.func.base
            elif isinstance(node, Call) and node.args and node.name in ("tensor", "full", "full_like", "as_tensor"):
                node = node.args[-1] if node.name.startswith("full") else node.args[0]
            elif isinstance(node, Op) and node.args and node.op in ("*", "/", "+", "-"):
                # 1000σ, t/1000 and 1−t are still the turn's entry.
                inner = [a for a in node.args if is_turn(a, loop)]
                return len(inner) == 1
            elif node.parts() and type(node).__name__ == "Seq":
                node = node.parts()[0]
            elif isinstance(node, Item):
                node = node.base
            else:
                break
    return False
