"""Truth of symbolic values on the default text-to-image request.

Engine options and absent inputs (media, injected caches, None defaults) take their defaults; what a user sets
to change the result (flags, scales, text) stays undecided, so that both ways are followed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.inspect.program.algebra import asks_for_none, is_none, options, reach, truth_by_parts
from scaffold.inspect.program.numeric import MISSING, default_of, engine_value, fold
from scaffold.inspect.program.values import Attr, Call, Carried, Choice, Conf, Const, Item, Map, Obj, Op, Param, Seq
from scaffold.source.values import ClassRef, External, Func, ModuleRef, Value

# The names of a method's parameters, where a pipeline asks ``inspect.signature`` which ones a scheduler takes.
#
# For the schedulers of diffusers they stand in ``scheduler_signatures.json``: those of ``step`` and
# ``set_timesteps`` that are the same in the releases that `scaffold.inspect.scheduler_signatures` read.

_FILE = Path(__file__).parent.parent / "scheduler_signatures.json"
_SIGNATURE = "inspect.signature"
_VIEWS = ("keys", "values", "items")


def parameters_of(value: Value) -> frozenset[str] | None:
    """The names in ``inspect.signature(method).parameters``; None for anything else, or where the method is not known.

    A method that takes any keyword has no such set.
    """
    method = _method(value)
    if method is None:
        return None
    if isinstance(method, Func):
        spec = method.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]]
        return frozenset(names[1:] if method.bound is not None else names) if spec.kwarg is None else None
    if not isinstance(method, Attr):
        return None
    found = {_of_diffusers(owner, method.name) for owner in options(method.base)}
    return found.pop() if len(found) == 1 else None


def _method(value: Value) -> Value | None:
    """What ``inspect.signature`` was given, behind ``.parameters`` and ``.keys()``."""
    if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in _VIEWS:
        value = value.func.base
    if isinstance(value, Attr) and value.name == "parameters":
        value = value.base
    if isinstance(value, Call) and isinstance(value.func, External) and value.func.path == _SIGNATURE and value.args:
        return value.args[0]
    return None


def _of_diffusers(made: Value, method: str) -> frozenset[str] | None:
    """The parameters of a method of what a class of diffusers constructs or loads."""
    func = made.func if isinstance(made, Call) else None
    while isinstance(func, Attr):
        func = func.base
    if not isinstance(func, External) or not func.path.startswith("diffusers."):
        return None
    name = next((part for part in reversed(func.path.split(".")) if part[:1].isupper()), "")
    names = _signatures().get(name, {}).get(method)
    return frozenset(names) if names is not None else None


@cache
def _signatures() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(read_text(_FILE))
    return found


MEDIA_KEY = "multi_modal_data"
MODEL_OPTION = "model"
"""The one option that every engine is given: where the weights are."""
REQUEST_ID = "request_id"
"""The request's id: not one of the literals that the source uses for the engine's warm-up."""


def decide(value: Value, depth: int = 0) -> bool | None:
    """Return the truth of ``value`` as a condition, or None where both ways are possible."""
    if depth > 12:
        return None
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, (Obj, Func, ClassRef, ModuleRef)):
        return True
    if isinstance(value, (Seq, Map)):
        # An item added under a condition or in a loop may be missing.
        optional = isinstance(value, Map) and bool(value.items) and len(value.maybe) == len(value.items)
        return bool(value.items) if value.exact and not optional else None
    if isinstance(value, Param):
        return _decide_param(value)
    if isinstance(value, Conf):
        known = default_of(value)
        return False if known is None and value.default is not None else None
    if isinstance(value, Choice):
        return _agree([decide(option, depth + 1) for option in options(value)[:6]])
    if isinstance(value, Op):
        return _decide_op(value, depth)
    if isinstance(value, Call):
        return False if _begins_with_a_name(value) else True if makes_object(value) else None
    return None


def _begins_with_a_name(value: Call) -> bool:
    """Whether a condition tests a request's id for a literal prefix."""
    receiver = value.func.base if isinstance(value.func, Attr) and value.func.name == "startswith" else None
    return _is_request_id(receiver) and len(value.args) == 1 and _is_text(value.args[0])


def _is_request_id(value: Value | None) -> bool:
    return isinstance(value, Param) and (value.root, value.key) == ("request", REQUEST_ID)


def _is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str) and bool(value.value)


def _decide_param(value: Param) -> bool | None:
    known = default_of(value)
    if value.root == "od_config" and value.key == MODEL_OPTION:
        return True
    if value.root == "prompt":
        if value.key == "prompt" or not value.key:
            return True
        return False if value.key.startswith(MEDIA_KEY) else _empty(known)
    if known is MISSING:
        return None
    if value.root == "od_config":
        return bool(known)
    return _empty(known) if known is not None else False


def _empty(known: Any) -> bool | None:
    """An absent collection stays absent; scalars may be set by the user."""
    return False if isinstance(known, (list, tuple, dict)) and not known else None


def _agree(answers: list[bool | None]) -> bool | None:
    first = answers[0] if answers else None
    return first if all(a is first for a in answers) else None


def _decide_op(value: Op, depth: int) -> bool | None:
    op, args = value.op, value.args
    if op in ("not", "and", "or"):
        return truth_by_parts(value, lambda part: decide(part, depth + 1))
    if op in ("is", "isnot"):
        answer = _is_same(args[0], args[1], depth)
        return answer if op == "is" or answer is None else not answer
    if op in ("in", "notin"):
        answer = _contains(args[0], args[1])
        return answer if op == "in" or answer is None else not answer
    if op in ("==", "!=") and any(_is_request_id(a) and _is_text(b) for a, b in (args, args[::-1])):
        return op == "!="
    if op in ("==", "!=", "<", "<=", ">", ">="):
        left, right = engine_value(args[0]), engine_value(args[1])
        known = MISSING if left is MISSING or right is MISSING else fold(op, [left, right])
        return None if known is MISSING else bool(known)
    return None


def _is_same(left: Value, right: Value, depth: int) -> bool | None:
    if not (isinstance(right, Const) and right.value is None):
        if isinstance(left, Const) and isinstance(right, Const):
            return left.value is right.value or left.value == right.value
        return None
    return none_ness(left, depth)


def none_ness(value: Value, depth: int = 0) -> bool | None:
    """Tell whether a value is None: True, False, or not known."""
    if depth > 12:
        return None
    if isinstance(value, Const):
        return value.value is None
    if isinstance(value, (Obj, Func, ClassRef, ModuleRef, Seq, Map, External)):
        return False
    if isinstance(value, Op):
        return False if value.op not in ("and", "or") else None
    if isinstance(value, Param):
        if value.root == "prompt" and not value.key.startswith(MEDIA_KEY):
            return False if value.key in ("", "prompt") else None
        if value.root == "od_config" and value.key == MODEL_OPTION:
            return False
        known = default_of(value)
        return None if known is MISSING else known is None
    if isinstance(value, Conf):
        return None if value.default is None else default_of(value) is None
    if isinstance(value, Choice):
        return _agree([none_ness(o, depth + 1) for o in options(value)[:6]])
    if isinstance(value, Carried):
        inner = [none_ness(v, depth + 1) for v in (value.init, value.final) if v is not None]
        return _agree(inner) if inner else None
    if isinstance(value, Call):
        return False if makes_object(value) else None
    return None


def absent_param(cond: Value) -> Param | None:
    """The request's parameter that a condition tests for None, where it is None unless somebody sets it."""
    param = tested_param(cond)
    return param if param is not None and default_of(param) is None else None


def tested_param(cond: Value) -> Param | None:
    """The request's parameter that a condition tests for None."""
    if isinstance(cond, Op) and cond.op == "not" and cond.args:
        return tested_param(cond.args[0])
    if isinstance(cond, Op) and cond.op in ("is", "isnot") and isinstance(cond.args[0], Param):
        param = cond.args[0]
        return param if param.root in ("sampling_params", "extra_args") and is_none(cond.args[1]) else None
    return None


def rests_on_options(cond: Value) -> bool:
    """Whether a condition asks for an option of the engine, such as where the model is."""
    return any(p.root == "od_config" for p in params_of(cond))


def params_of(cond: Value) -> list[Param]:
    """Return the user's and engine's parameters that a condition depends on, through operators and choices."""
    asked = reach([cond], lambda node: node.parts() if isinstance(node, (Op, Choice)) else ())
    return [node for node in asked if isinstance(node, Param)]


def makes_object(value: Call) -> bool:
    """Whether a call outside the source constructs something, by the naming rules of Python."""
    func = value.func
    if isinstance(func, External):
        return func.path.rpartition(".")[2][:1].isupper() or func.path.startswith(("torch.", "numpy."))
    if isinstance(func, Attr):
        return func.name.startswith("from_") and isinstance(func.base, (External, ClassRef))
    return False


def _contains(needle: Value, stack: Value) -> bool | None:
    if isinstance(stack, Param) and stack.key == "extra_args":
        return None
    if isinstance(needle, Const) and isinstance(stack, Seq) and stack.exact:
        if all(isinstance(item, Const) for item in stack.items):
            return any(isinstance(i, Const) and i.value == needle.value for i in stack.items)
        return None
    if isinstance(needle, Const) and isinstance(stack, Map) and stack.exact:
        return None if needle.value in stack.maybe else needle.value in stack.items
    if isinstance(needle, Const) and isinstance(stack, (Const, Param, Conf)):
        known = engine_value(stack)
        if known is MISSING and isinstance(stack, Param):
            known = default_of(stack)
            if known is not MISSING and known and stack.root != "od_config":
                return None
        if isinstance(known, (str, list, tuple, dict)):
            try:
                return needle.value in known
            except TypeError:
                return None
        if known is None and isinstance(stack, Param) and stack.root != "prompt":
            return False
    if isinstance(needle, Const) and isinstance(stack, (Attr, Call)) and (names := parameters_of(stack)) is not None:
        return needle.value in names
    if isinstance(needle, Const) and isinstance(stack, Item) and isinstance(stack.base, Param):
        return False if stack.base.key.startswith(MEDIA_KEY) else None
    return None


# The truth of conditions, and the alternatives of values, for a request with default settings.

_COMPARISONS = frozenset((">", "<", ">=", "<=", "==", "!="))


def by_default(cond: Value, depth: int = 0) -> bool | None:
    """Return the truth of a condition with every setting at its default; None if unknown."""
    decided = decide(cond)
    if decided is not None or depth > 12:
        return decided
    if isinstance(cond, Map) and cond.exact and cond.maybe == set(cond.items) == cond.unasked:
        return False
    if isinstance(cond, Op) and cond.op in ("not", "and", "or"):
        return truth_by_parts(cond, lambda part: by_default(part, depth + 1))
    if isinstance(cond, Op) and cond.op in _COMPARISONS and len(cond.args) == 2:
        outcomes = set(_outcomes(cond))
        return outcomes.pop() if len(outcomes) == 1 else None
    if asks_for_none(cond):
        nones = {_is_none(o) for o in taken_by_default(cond.args[0])}
        known_one = nones.pop() if len(nones) == 1 else None
        return known_one if known_one is None or cond.op == "is" else not known_one
    known = default_of(cond)
    return None if known is MISSING else bool(known)


def leans(cond: Value) -> bool | None:
    """Return the truth of a condition for most of the values that configuration files may hold."""
    decided = by_default(cond)
    if decided is not None or not (isinstance(cond, Op) and cond.op in _COMPARISONS and len(cond.args) == 2):
        return decided
    outcomes = _outcomes(cond)
    holding = sum(o is True for o in outcomes)
    return None if None in outcomes or 2 * holding == len(outcomes) else 2 * holding > len(outcomes)


def _outcomes(cond: Op) -> list[bool | None]:
    """The results of a comparison for each pair of alternatives; None where a side is not known."""
    left, right = ([default_of(o) for o in taken_by_default(arg)] for arg in cond.args)
    folded = [MISSING if MISSING in (a, b) else fold(cond.op, [a, b]) for a in left for b in right]
    return [None if result is MISSING else bool(result) for result in folded]


def _is_none(value: Value) -> bool | None:
    known = default_of(value)
    return none_ness(value) if known is MISSING else known is None


def taken_by_default(value: Value) -> list[Value]:
    """Return the alternatives of a value that default settings allow."""

    def kept(node: Value) -> list[Value]:
        if not isinstance(node, Choice):
            return []
        truth = by_default(node.cond) if node.cond is not None and len(node.options) == 2 else None
        return node.options if truth is None else [node.options[0 if truth else 1]]

    return [node for node in reach([value], kept) if not isinstance(node, Choice)] or options(value)
