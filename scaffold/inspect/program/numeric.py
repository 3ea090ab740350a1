"""Numbers behind symbolic values: their defaults, and their value for given symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from scaffold.inspect.program.values import (
    Attr,
    Call,
    Choice,
    Conf,
    Const,
    Elem,
    External,
    Index,
    Item,
    Map,
    Op,
    Param,
    Seq,
    Slice,
    Value,
)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "is": lambda a, b: a is b,
    "isnot": lambda a, b: a is not b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "floor": math.floor,
    "ceil": math.ceil,
    "isqrt": math.isqrt,
    "max": max,
    "min": min,
    "abs": abs,
    "round": round,
    "maximum": max,
    "minimum": min,
    "power": math.pow,
    "clip": lambda value, low, high: min(max(value, low), high),
    "len": len,
}


_CONSTANTS = {"math.pi": math.pi, "numpy.pi": math.pi, "torch.pi": math.pi, "math.e": math.e}
_CONVERSIONS = frozenset(("tensor", "as_tensor", "from_numpy", "array", "asarray", "enumerate"))


_CASTS = frozenset(("astype", "copy", "clone", "item"))
"""Methods that leave the numbers as they are."""


def fold(op: str, args: list[Any]) -> Any:
    """Apply an operator to plain values; MISSING where it does not apply or the result would be large."""
    try:
        if op == "neg":
            return -args[0]
        if op == "not":
            return not args[0]
        if op in ("in", "notin"):
            return (args[0] in args[1]) is (op == "in")
        function = _BINARY.get(op)
        if function is None or len(args) != 2:
            return MISSING
        left, right = args
        sized = isinstance(left, str | bytes | list | tuple) or isinstance(right, str | bytes | list | tuple)
        if op == "**" and (abs(left) > 1e6 or abs(right) > 64):
            return MISSING
        if op == "*" and sized:
            return MISSING
        if op == "%" and isinstance(left, str):
            return MISSING
        if op == "+" and sized and len(left) + len(right) > 10_000:
            return MISSING
        return function(left, right)
    except (TypeError, ValueError, ArithmeticError):
        return MISSING


def default_of(value: Value | None, _depth: int = 0) -> Any:
    """The plain value that a symbol has when nobody sets anything; MISSING where that is not known."""
    return _plain(value, lambda symbol: symbol.default, _depth, frozenset(), {})


def engine_value(value: Value | None) -> Any:
    """Like ``default_of``, with only constants and engine options known: nothing that a request can change."""

    def engine(symbol: Param | Conf) -> Value | None:
        return symbol.default if isinstance(symbol, Param) and symbol.root == "od_config" else None

    return _plain(value, engine, 0, frozenset(), {})


def plain(value: Value | None, known: Mapping[int, Any] | None = None) -> Any:
    """The plain value behind ``value``, with values given for some nodes by ``id`` and defaults for the rest."""
    return _plain(value, lambda symbol: symbol.default, 0, frozenset(), known or {})


def number(value: Value | None, known: Mapping[int, Any]) -> float | None:
    """Evaluate ``value`` with numbers given for some nodes by ``id`` and defaults for the rest."""
    result = _plain(value, lambda symbol: symbol.default, 0, frozenset(), known)
    return float(result) if isinstance(result, int | float) and not isinstance(result, bool) else None


def _plain(
    value: Value | None,
    default: Callable[[Param | Conf], Value | None],
    depth: int,
    open_nodes: frozenset[int],
    known: Mapping[int, Any],
) -> Any:
    if value is None or depth > 40 or id(value) in open_nodes:
        return MISSING
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Const):
        return value.value

    def inner(other: Value | None) -> Any:
        return _plain(other, default, depth + 1, open_nodes | {id(value)}, known)

    if isinstance(value, Param | Conf):
        return inner(default(value))
    if isinstance(value, Seq) and value.exact:
        items = [inner(i) for i in value.items[:64]]
        if any(i is MISSING for i in items):
            return MISSING
        return tuple(items) if value.kind == "tuple" else items
    if isinstance(value, Map) and value.exact and not value.items:
        return {}
    if isinstance(value, Op):
        args = [inner(a) for a in value.args]
        if value.op in ("and", "or"):
            for arg in args:
                if arg is MISSING:
                    return MISSING
                if bool(arg) is (value.op == "or"):
                    return arg
            return args[-1]
        return MISSING if any(a is MISSING for a in args) else fold(value.op, args)
    if isinstance(value, Choice):
        return _choose(value, inner)
    if known and isinstance(value, Item) and isinstance(value.key, Slice | Index | Seq):
        # One entry of a vector stands for all of them.
        return inner(value.base)
    if known and isinstance(value, Elem):
        return inner(value.source)
    if isinstance(value, Item):
        base, key = inner(value.base), inner(value.key)
        try:
            return MISSING if base is MISSING or key is MISSING else base[key]
        except (TypeError, KeyError, IndexError):
            return MISSING
    if isinstance(value, Call):
        name = value.func.path.rpartition(".")[2] if isinstance(value.func, External) else ""
        if known and name in _CONVERSIONS and value.args:
            return inner(value.args[0])
        if known and isinstance(value.func, Attr) and value.func.name in _CASTS:
            return inner(value.func.base)
        function = _FUNCTIONS.get(name)
        args = [inner(a) for a in value.args]
        if function is None or value.kwargs or not args or any(a is MISSING for a in args):
            return MISSING
        try:
            return function(*args)
        except (TypeError, ValueError, ArithmeticError):
            return MISSING
    if isinstance(value, External):
        return _CONSTANTS.get(value.path, MISSING)
    return MISSING


def _choose(value: Choice, inner: Callable[[Value | None], Any]) -> Any:
    if value.cond is not None and len(value.options) == 2:
        truth = inner(value.cond)
        if truth is not MISSING:
            return inner(value.options[0] if truth else value.options[1])
    found = [inner(option) for option in value.options]
    first = found[0]
    return first if all(type(f) is type(first) and f == first for f in found) else MISSING
