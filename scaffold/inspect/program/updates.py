"""How a turn updates the sample: by a scheduler's step, a written-out update, or noise added to a prediction."""

from __future__ import annotations

import ast

from scaffold.inspect.program.algebra import Search, options, walk
from scaffold.inspect.program.trace import LoopRecord
from scaffold.inspect.program.turns import JOINS, SHAPE_METHODS, is_entry, is_sample, is_turn, without_reshaping
from scaffold.inspect.program.values import Attr, Call, Carried, Choice, Const, Index, Item, Obj, Op
from scaffold.source.values import External, Func, Value

STEP_METHOD = "step"
WRITTEN = "index_put"
"""A tensor some entries of which were assigned: ``index_put(tensor, written)``."""
NOISING_METHODS = frozenset(("add_noise", "scale_noise"))
NOISE_CALLS = frozenset(("randn", "randn_like", "randn_tensor", "normal", "normal_"))


def is_renoised(value: Call | Op, variable: Carried) -> bool:
    """Whether a value is a prediction mixed with noise drawn in this turn, the sample itself left out."""
    if isinstance(value, Call):
        given = [*value.args, *value.kwargs.values()]
        mixes = value.name in NOISING_METHODS
        return mixes and any(_is_noise(a, variable) for a in given) and any(through_model(a, variable) for a in given)
    terms = [t for t, _ in _terms(value)]
    return (
        len(terms) > 1
        and not any(is_sample(t, variable) for t in terms)
        and any(_is_noise(t, variable) for t in terms)
        and any(through_model(t, variable) for t in terms)
    )


def _is_noise(value: Value, variable: Carried) -> bool:
    """Whether a value is noise drawn in the loop of ``variable``, scaled at the most."""
    for option in options(value):
        node = without_reshaping(option)
        if isinstance(node, Op) and node.op in ("*", "/") and len(node.args) == 2:
            if any(_is_noise(a, variable) for a in node.args):
                return True
        elif isinstance(node, Call) and node.name in NOISE_CALLS:
            return variable.loop in node.loops
    return False


def walks_a_schedule(update: Op, loop: LoopRecord, variable: Carried) -> bool:
    """Whether the turn's entry goes into an update as a number; the layers of a network are called instead."""
    entered = isinstance(loop.node, ast.While)
    for node in walk(update):
        if isinstance(node, Call) and node.name not in SHAPE_METHODS and is_entry(_called(node), loop.number):
            if any(is_sample(a, variable) or through_model(a, variable) for a in arguments(node)):
                return False
        entered = entered or is_entry(node, loop.number) or (isinstance(node, Index) and node.loop == loop.number)
    return entered


def _called(call: Call) -> Value:
    func = call.func
    while isinstance(func, Attr) or (isinstance(func, Item) and isinstance(func.key, Const)):
        func = func.base
    return func


def unwrap(value: Value) -> Value:
    """Look through ``.prev_sample``, ``[0]`` and reshaping to what was computed."""
    for _ in range(12):
        value = without_reshaping(value)
        if (isinstance(value, Attr) and isinstance(value.base, (Call, Choice, Item))) or isinstance(value, Item):
            value = value.base
        elif isinstance(value, Call) and value.name == WRITTEN:
            value = value.args[1] if any(isinstance(n, Call) for n in walk(value.args[1])) else value.args[0]
        elif isinstance(value, Call) and value.name == "where" and len(value.args) == 3:
            # Some entries are unchanged, such as those of a conditioning frame.
            kept = [a for a in value.args[1:] if not isinstance(a, Carried)]
            if len(kept) != 1:
                break
            value = kept[0]
        elif isinstance(value, Call) and value.name in JOINS and (stepped := _stepped_part(value)) is not None:
            value = stepped
        elif isinstance(value, Choice):
            calls = [unwrap(o) for o in value.options]
            value = next((c for c in calls if isinstance(c, (Call, Op))), value.options[0])
        else:
            break
    return value


def _stepped_part(joined: Call) -> Value | None:
    """Return the one part of a joined tensor that a step computed; others, such as a conditioning frame, are kept."""
    parts = [unwrap(p) for p in (joined.args[0].parts() if joined.args else [])[:4]]
    steps = [p for p in parts if isinstance(p, Call) and p.name == STEP_METHOD]
    return steps[0] if len(steps) == 1 else None


def through_model(value: Value, variable: Carried) -> bool:
    """Whether a value depends on the variable through a call, as a prediction does."""
    if is_sample(value, variable):
        return False
    if variable.found_in is None:
        variable.found_in = Search(lambda node: node is variable)
    return variable.found_in(value) and any(isinstance(n, Call) and not _is_builtin(n) for n in walk(value))


def _is_builtin(call: Call) -> bool:
    return isinstance(call.func, External) and call.func.path.startswith("builtins.")


def arguments(call: Call) -> list[Value]:
    return [*call.args, *(v for k, v in call.kwargs.items() if k != "**")]


def is_step(call: Call, variable: Carried) -> bool:
    """A method that takes the sample and a prediction made from it, and is not itself the model."""
    if not isinstance(call.func, (Attr, Func)):
        return False
    if any(isinstance(o, Obj) and o.cls.is_module for o in options(call.receiver)):
        return False
    given = arguments(call)
    if call.name != STEP_METHOD and not any(is_turn(a, variable.loop) for a in given):
        return False
    return any(is_sample(a, variable) for a in given) and any(through_model(a, variable) for a in given)


def step_output(step: Call | None, variable: Carried) -> Value | None:
    if step is None:
        return None
    return next((a for a in arguments(step) if through_model(a, variable)), None)


def _terms(value: Value, sign: int = 1) -> list[tuple[Value, int]]:
    """The summands of an expression; of a sum with alternatives, those of all."""
    if isinstance(value, Op) and value.op in ("+", "-") and len(value.args) == 2:
        found = []
        for index, arg in enumerate(value.args):
            inner = -sign if index and value.op == "-" else sign
            sums = [o for o in options(arg)[:8] if isinstance(o, Op) and o.op in ("+", "-")]
            found += [t for o in sums for t in _terms(o, inner)] if sums else _terms(arg, inner)
        return found
    return [(value, sign)]


def is_update(value: Op, variable: Carried) -> bool:
    """``x ± step·prediction``: the sample is one summand, the others come from the model."""
    terms = [t for t, _ in _terms(value)]
    if len(terms) < 2 or not any(is_sample(t, variable) for t in terms):
        return False
    return any(through_model(t, variable) for t in terms if not is_entry(t, variable.loop))


def inline_output(value: Op | None, variable: Carried) -> Value | None:
    if value is None:
        return None
    for term, _ in _terms(value):
        if not through_model(term, variable):
            continue
        factors = term.args if isinstance(term, Op) and term.op in ("*", "/") else [term]
        return next((f for f in factors if through_model(f, variable)), term)
    return None
