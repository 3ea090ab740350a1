"""Evaluates untrusted source with bounds on the size of every value.

All code that evaluates Python source uses these operators, calls and methods, and counts its steps with a `Budget`. A
value that would be too large is refused before it is computed, with a ``ValueError``, which means "unknown".
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
OF_NUMBERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **OF_NUMBERS,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


BITS = 1000  # of an integer, so that it converts to a float
TEXT = 100_000  # characters of a text
ITEMS = 400_000  # values inside a container, nested ones included
PLACES = 400  # digits that a number is rounded to or written with

_PATTERN = 200  # characters of a regular expression
_TRIES = 10_000_000
_REPEAT = r"(?<!\\)[*+]|\{[0-9]*,[0-9]*\}"
_REPEATED_GROUP = r"\)[*+?{]"
_CONTAINERS = (list, tuple, set, frozenset, dict)
_TEXTS = (str, bytes, bytearray)
_SIZED = (*_CONTAINERS, *_TEXTS, int)
_UNSIZED = frozenset({bool, float, type(None)})
_FREE = 32  # characters of a text that costs no step
_DIRECTIVE = r"(?s)%(?:\([^)]*\))?[-#0 +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.)"


class TooLargeError(ValueError):
    """A value would be larger than anything that a package needs."""


class Budget:
    """Steps that one question may take.

    Args:
        steps: how many.
        spent: makes the error to raise when no step is left.
        items: values that one container may hold.
    """

    def __init__(self, steps: int, spent: Callable[[], Exception], items: int = ITEMS) -> None:
        self.steps, self.spent = steps, 0
        self.over, self._items = spent, items

    def spend(self, steps: int = 1) -> None:
        """Take steps; raise the error if none is left."""
        self.spent += steps
        if self.spent > self.steps:
            raise self.over()

    def hold(self, value: Any) -> Any:
        """Return a computed value and charge steps for its size, since every part of it will be read.

        Raises:
            TooLargeError: it is too large.
        """
        kind = type(value)
        small = kind in _UNSIZED or (kind is str and len(value) < _FREE)
        if not small and isinstance(value, _SIZED):
            self.spend(size(value, self._items) // 2)
        return value


def size(value: Any, most: int = ITEMS) -> int:
    """Return how many values a container holds, counting repeated ones again, or the length of a text.

    Raises:
        TooLargeError: more than is allowed.
    """
    if isinstance(value, _TEXTS):
        return _at_most(len(value), TEXT) // 16
    if isinstance(value, int):
        return _at_most(value.bit_length(), BITS) // BITS
    if not isinstance(value, _CONTAINERS):
        return 0
    pending, seen = [value], 0
    while pending:
        one = pending.pop()
        seen += len(one)
        _at_most(seen, most)
        inner: Iterable[Any] = [*one, *one.values()] if isinstance(one, dict) else one
        for part in inner:
            if isinstance(part, _CONTAINERS):
                pending.append(part)
            elif isinstance(part, _TEXTS):
                seen += len(part) // 64
    return _at_most(seen, most)


def operate(kind: type[ast.operator], left: Any, right: Any) -> Any:
    """Return what an operator makes of two plain values.

    Raises:
        TooLargeError: more than is allowed; ValueError, TypeError, ArithmeticError as Python does.
    """
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length(), right.bit_length()
        if kind is ast.Pow and right > 0:
            _at_most(bits[0] * right if bits[0] > 1 else 1, BITS)
        elif kind is ast.Mult:
            _at_most(sum(bits), BITS)
        elif kind is ast.LShift:
            _at_most(bits[0] + max(right, 0), BITS)
        else:
            _at_most(max(bits), BITS)
    elif kind is ast.Mult:
        for many, times in ((left, right), (right, left)):
            if isinstance(many, (list, tuple, *_TEXTS)) and isinstance(times, int):
                _at_most(max(1, size(many), len(many)) * times, TEXT if isinstance(many, _TEXTS) else ITEMS)
    elif kind is ast.Mod and isinstance(left, (str, bytes)):
        _require_small_fields(left, right)
    elif isinstance(left, _TEXTS) and isinstance(right, _TEXTS):
        _at_most(len(left) + len(right), TEXT)
    elif isinstance(left, _CONTAINERS) and isinstance(right, _CONTAINERS):
        _at_most(len(left) + len(right), ITEMS)
    function = ARITHMETIC.get(kind)
    if function is None:
        raise ValueError(f"{kind.__name__} is not worked out")
    return function(left, right)


def compare(kind: type[ast.cmpop], left: Any, right: Any) -> Any:
    """Return the result of comparing two plain values.

    Raises:
        TooLargeError: one of them is larger than is allowed; TypeError as Python does.
    """
    for value in (left, right):
        _require_finite(value)
    return COMPARISONS[kind](left, right)


def call(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """Call a function of Python's with plain values.

    Raises:
        TooLargeError: a value, or what would come out, is larger than is allowed; other errors as the function does.
    """
    for value in (*values, *options.values()):
        _require_finite(value)
    if function is round and len(values) > 1 and isinstance(values[1], int):
        _at_most(abs(values[1]), PLACES)
    if function is sum:
        return _folded(ast.Add, values[0], values[1] if len(values) > 1 else options.get("start", 0))
    if function is math.prod:
        return _folded(ast.Mult, values[0], options.get("start", 1))
    if function is pow:
        return operate(ast.Pow, *values)
    return function(*values, **options)


def method(owner: Any, name: str, *values: Any, **options: Any) -> Any:
    """Call a method of a plain text or container.

    Raises:
        TooLargeError: a value, or what would come out, is larger than is allowed; other errors as the method does.
    """
    for value in (*values, *options.values()):
        _require_finite(value)
    if isinstance(owner, _TEXTS):
        if name == "replace" and len(values) > 1:
            found = owner.count(values[0])
            found = found if len(values) < 3 or values[2] < 0 else min(found, values[2])
            _at_most(len(owner) + found * len(values[1]), TEXT)
        elif name == "join" and values:
            parts = list(values[0])
            _at_most(sum(map(len, parts)) + len(owner) * len(parts), TEXT)
            values = (parts,)
        elif name in ("ljust", "rjust", "center", "zfill", "expandtabs") and values:
            _at_most(values[0], TEXT)
        elif name in ("format", "format_map", "translate"):
            raise ValueError(f"{name} is not worked out")
    elif name in ("extend", "update") and values and hasattr(values[0], "__len__"):
        _at_most(len(owner) + len(values[0]), ITEMS)
    return getattr(owner, name)(*values, **options)


def regular(function: Callable[..., Any], pattern: str, *values: Any) -> Any:
    """Call a function of ``re`` that takes a pattern, or a method of a compiled one, whose pattern this is.

    Raises:
        TooLargeError: it may take for ever; other errors as the function does.
    """
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    if len(pattern) > _PATTERN or re.search(_REPEATED_GROUP, pattern):
        raise TooLargeError("a pattern of the source is too complicated to work with")
    _at_most(max(longest, 2) ** len(re.findall(_REPEAT, pattern)), _TRIES)
    return function(*values)


def joined(parts: Iterable[Any]) -> str:
    """Return values as one text, as a format string without formats does.

    Raises:
        TooLargeError: it is longer than is allowed, or a value in it is.
    """
    made, length = [], 0
    for part in parts:
        size(part)
        made.append(str(part))
        length = _at_most(length + len(made[-1]), TEXT)
    return "".join(made)


def counted(number: int, most: int = ITEMS) -> int:
    """Return a number of items; raise `TooLargeError` if it is more than is allowed."""
    return _at_most(number, most)


def _require_finite(value: Any) -> None:
    """Refuse a container or a range that takes too long to iterate."""
    if isinstance(value, range):
        _at_most(len(value), ITEMS)
    size(value)


def _folded(kind: type[ast.operator], values: Any, result: Any) -> Any:
    for value in values:
        result = operate(kind, result, value)
    return result


def _require_small_fields(pattern: str | bytes, values: Any) -> None:
    """Refuse ``%`` with wide fields, and with values that would be long as text."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    given = list(values.values()) if isinstance(values, dict) else values if isinstance(values, tuple) else [values]
    longest = max((len(one) if isinstance(one, _TEXTS) else 20 * (1 + size(one)) for one in given), default=0)
    fields = re.findall(_DIRECTIVE, text)
    for field in fields:
        for width in field[:2]:
            if width == "*":
                raise ValueError("the width of a field is a value")
            _at_most(int(width[:9] or 0), PLACES)
    _at_most(len(text) + len(fields) * (longest + 2 * PLACES + BITS), 50 * TEXT)


def _at_most(number: int, most: int) -> int:
    if number > most:
        raise TooLargeError("a value of the source is too large to work with")
    return number


def memory() -> str:
    """Return the memory limit of this process, in words: the user's own if set."""
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    set_ones = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    return f"the memory limit of {min(set_ones) >> 20} MiB" if set_ones else "the memory there is"
