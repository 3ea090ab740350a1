"""Numbers behind symbolic values: their defaults, and their value for given symbols."""

from __future__ import annotations

import ast
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
    Index,
    Item,
    Map,
    Op,
    Param,
    Seq,
    Slice,
)
from scaffold.limits.bounded import call, compare, operate
from scaffold.source.values import ClassRef, External, Value


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()

_ARITHMETIC: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "**": ast.Pow,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "is": ast.Is,
    "isnot": ast.IsNot,
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
    "any": any,
    "all": all,
    "str": str,
}


_CONSTANTS = {"math.pi": math.pi, "numpy.pi": math.pi, "torch.pi": math.pi, "math.e": math.e}
TYPES: dict[str, type] = {f"builtins.{t.__name__}": t for t in (bool, int, float, str, list, tuple, dict)}
_CONVERSIONS = frozenset(("tensor", "as_tensor", "from_numpy", "array", "asarray", "enumerate"))


_CASTS = frozenset(("astype", "copy", "clone", "item"))
"""Methods that leave the numbers as they are."""
_OF_TEXT: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "strip": str.strip}
MAX_DEPTH = 40
"""How deep values may nest."""


def fold(op: str, args: list[Any]) -> Any:
    """Apply an operator to plain values; MISSING where it does not apply or the result would be large."""
    try:
        if op == "neg":
            return -args[0]
        if op == "not":
            return not args[0]
        if op in ("in", "notin"):
            return (args[0] in args[1]) is (op == "in")
        if len(args) != 2:
            return MISSING
        if op in _COMPARISONS:
            return compare(_COMPARISONS[op], *args)
        # A text or list that is repeated or filled in is looked at as what it is made of.
        sized = any(isinstance(arg, (str, bytes, list, tuple)) for arg in args)
        if op not in _ARITHMETIC or (op == "*" and sized) or (op == "%" and isinstance(args[0], str)):
            return MISSING
        if op == "+" and sized and sum(map(len, args)) > 10_000:
            return MISSING
        return operate(_ARITHMETIC[op], *args)
    except (TypeError, ValueError, ArithmeticError):
        return MISSING


def default_of(value: Value | None) -> Any:
    """The plain value that a symbol has when nobody sets anything; MISSING where that is not known."""
    return value.value if isinstance(value, Const) else _Evaluation(_default, {}).of(value)


def engine_value(value: Value | None) -> Any:
    """Like ``default_of``, with only constants and engine options known: nothing that a request can change."""
    return value.value if isinstance(value, Const) else _Evaluation(_engine_default, {}).of(value)


def number(value: Value | None, known: Mapping[int, Any]) -> float | None:
    """Evaluate ``value`` with numbers given for some nodes by ``id`` and defaults for the rest."""
    result = _Evaluation(_default, known).of(value)
    return float(result) if isinstance(result, (int, float)) and not isinstance(result, bool) else None


def _default(symbol: Param | Conf) -> Value | None:
    if isinstance(symbol, Conf) and symbol.stated is not None:
        return symbol.stated
    # Every request has a prompt, whatever the source does without one.
    is_text = isinstance(symbol, Param) and symbol.root == "prompt" and symbol.key in ("", "prompt")
    return None if is_text else symbol.default


def _engine_default(symbol: Param | Conf) -> Value | None:
    return symbol.default if isinstance(symbol, Param) and symbol.root == "od_config" else None


class _Evaluation:
    """Evaluates one value; what several parts share is computed once.

    A result counts for every place only if it did not depend on where the node stands: no part of it ended at a
    node that was being evaluated, and none nests deeper from there than the limit allows.
    """

    def __init__(self, default: Callable[[Param | Conf], Value | None], known: Mapping[int, Any]) -> None:
        self._default = default
        self._known = known
        self._open: set[int] = set()
        self._done: dict[int, tuple[Any, int]] = {}
        self._depth = 0
        self._deepest = 0
        self._cut = 0

    def of(self, value: Value | None) -> Any:
        """The plain value, or MISSING."""
        if value is None:
            return MISSING
        if self._depth > MAX_DEPTH:
            self._cut += 1
            return MISSING
        key = id(value)
        if key in self._open:
            self._cut += 1
            return MISSING
        if key in self._known:
            return self._known[key]
        if isinstance(value, Const):
            return value.value
        done = self._done.get(key)
        if done is not None and self._depth + done[1] <= MAX_DEPTH:
            self._deepest = max(self._deepest, self._depth + done[1])
            return done[0]
        deepest, cut = self._deepest, self._cut
        self._deepest = self._depth = self._depth + 1
        self._open.add(key)
        try:
            result = self._compound(value)
        finally:
            self._open.discard(key)
            self._depth -= 1
        if cut == self._cut:
            self._done[key] = result, self._deepest - self._depth
        self._deepest = max(deepest, self._deepest)
        return result

    def _compound(self, value: Value) -> Any:
        if isinstance(value, (Param, Conf)):
            return self.of(self._default(value))
        if isinstance(value, Seq) and value.exact:
            items = [self.of(i) for i in value.items[:64]]
            if any(i is MISSING for i in items):
                return MISSING
            return tuple(items) if value.kind == "tuple" else items
        if isinstance(value, Map) and value.exact and not value.items:
            return {}
        if isinstance(value, Op):
            return self._operation(value)
        if isinstance(value, Choice):
            return self._choice(value)
        if self._known and isinstance(value, Item) and isinstance(value.key, (Slice, Index, Seq)):
            # One entry of a vector stands for all of them.
            return self.of(value.base)
        if self._known and isinstance(value, Elem):
            return self.of(value.source)
        if isinstance(value, Item):
            base, key = self.of(value.base), self.of(value.key)
            try:
                return MISSING if base is MISSING or key is MISSING else base[key]
            except (TypeError, KeyError, IndexError):
                return MISSING
        if isinstance(value, Call):
            return self._call(value)
        if isinstance(value, External):
            return _CONSTANTS.get(value.path, MISSING)
        return MISSING

    def _operation(self, value: Op) -> Any:
        args = []
        for part in value.args:
            arg = self.of(part)
            if arg is MISSING:
                return MISSING
            if value.op in ("and", "or") and bool(arg) is (value.op == "or"):
                return arg
            args.append(arg)
        return args[-1] if value.op in ("and", "or") else fold(value.op, args)

    def _choice(self, value: Choice) -> Any:
        if value.cond is not None and len(value.options) == 2:
            truth = self.of(value.cond)
            if truth is not MISSING:
                return self.of(value.options[0] if truth else value.options[1])
        first = self.of(value.options[0])
        for option in value.options[1:]:
            if first is MISSING:
                break
            other = self.of(option)
            if type(other) is not type(first) or other != first:
                return MISSING
        return first

    def _call(self, value: Call) -> Any:
        name = value.func.path.rpartition(".")[2] if isinstance(value.func, External) else ""
        if self._known and name in _CONVERSIONS and value.args:
            return self.of(value.args[0])
        if self._known and isinstance(value.func, Attr) and value.func.name in _CASTS:
            return self.of(value.func.base)
        if isinstance(value.func, Attr) and value.name in _OF_TEXT and not value.args:
            text = self.of(value.func.base)
            return _OF_TEXT[value.name](text) if isinstance(text, str) else MISSING
        if name == "isinstance" and len(value.args) == 2:
            types = _types(value.args[1])
            held = self.of(value.args[0]) if types or isinstance(value.args[1], ClassRef) else MISSING
            return MISSING if held is MISSING else isinstance(held, types)
        function = _FUNCTIONS.get(name)
        if function is None or value.kwargs or not value.args:
            return MISSING
        args = [self.of(a) for a in value.args]
        if any(a is MISSING for a in args):
            return MISSING
        try:
            return call(function, *args)
        except (TypeError, ValueError, ArithmeticError):
            return MISSING


def _types(value: Value) -> tuple[type, ...]:
    """The builtin types that ``isinstance`` asks for; none where one of them is another class."""
    if isinstance(value, Op) and value.op == "|":
        found = [_types(a) for a in value.args]
    elif isinstance(value, Seq):
        found = [_types(i) for i in value.items]
    else:
        known = TYPES.get(value.path) if isinstance(value, External) else None
        return (known,) if known is not None else ()
    return tuple(t for types in found for t in types) if all(found) else ()
