"""Functions of the standard library on known values; unknown where the result is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffold.limits.bounded import call, counted, regular
from scaffold.source.values import UNKNOWN, Bound, External, Stream, UndecidedError, Unknown

if TYPE_CHECKING:
    from scaffold.source.plain import Plain

Builtin = Callable[["Plain", list[Any], dict[str, Any]], Any]
WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_DIGITS = 20


def _plainly(function: Callable[..., Any]) -> Builtin:
    """Call a function of Python with known values."""

    def known(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
        values = [*args, *kwargs.values()]
        if any(isinstance(value, Unknown) or (isinstance(value, str) and len(value) > _DIGITS) for value in values):
            return UNKNOWN
        try:
            return call(function, *(a.items if isinstance(a, Stream) else a for a in args), **kwargs)
        except WRONG:
            return UNKNOWN

    return known


def _len(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return len(args[0]) if isinstance(args[0], (str, list, tuple, dict, set, frozenset, range)) else UNKNOWN


def _range(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args or not all(type(a) is int for a in args):
        return UNKNOWN
    made = range(*args)
    counted(len(made))
    return made


def _enumerate(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    return UNKNOWN if type(start) is not int else list(enumerate(domain.iterate(args[0]), start))


def _zip(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return [tuple(row) for row in zip(*(domain.iterate(a) for a in args), strict=False)]


def _dict(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args:
        return dict(kwargs)
    kept = domain.copied("dict", args[0])
    if kept is not None:
        return kept
    if isinstance(args[0], dict):
        return {**args[0], **kwargs}
    if isinstance(args[0], Unknown):
        return UNKNOWN
    pairs = domain.iterate(args[0])
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        return UNKNOWN
    return domain.table([*((pair[0], pair[1]) for pair in pairs), *kwargs.items()], None)


def _collected(kind: str) -> Builtin:
    def known(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args:
            return domain.sequence(kind, [], True, None)
        kept = domain.copied(kind, args[0])
        if kept is not None or isinstance(args[0], Unknown):
            return UNKNOWN if kept is None else kept
        return domain.sequence(kind, domain.iterate(args[0]), True, None)

    return known


def _sorted(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], Unknown):
        return UNKNOWN
    items, key, reverse = domain.iterate(args[0]), kwargs.get("key"), kwargs.get("reverse") is True
    ranks = items if key is None else [domain.call(key, [item], {}) for item in items]
    if not all(isinstance(r, str) for r in ranks) and not all(type(r) in (int, float) for r in ranks):
        return UNKNOWN
    pairs = sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0], reverse=reverse)
    return [item for _, item in pairs]


def _reversed(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return domain.iterate(args[0])[::-1]


def _str(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return str(args[0]) if args and isinstance(args[0], (str, int, float)) else UNKNOWN


def _bool(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    truth = domain.decide(args[0]) if args else False
    return UNKNOWN if truth is None else truth


def _some(decisive: bool) -> Builtin:
    """``any`` or ``all``."""

    def known(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
        truths = [domain.decide(item) for item in domain.iterate(args[0])]
        if decisive in truths:
            return decisive
        return UNKNOWN if None in truths else not decisive

    return known


def _iter(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args[0] if isinstance(args[0], Stream) else Stream(domain.iterate(args[0]))


def _next(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not isinstance(args[0], Stream):
        return UNKNOWN
    return args[0].items.pop(0) if args[0].items else args[1] if len(args) > 1 else UNKNOWN


def _filter(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    kept = [(item, domain.decide(domain.call(args[0], [item], {}))) for item in domain.iterate(args[1])]
    return UNKNOWN if any(truth is None for _, truth in kept) else Stream([item for item, truth in kept if truth])


def _map(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Stream([domain.call(args[0], [item], {}) for item in domain.iterate(args[1])])


def _chain(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items: list[Any] = []
    for value in args:
        items += domain.iterate(value)
        counted(len(items))
    return Stream(items)


def _chain_of(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _chain(domain, domain.iterate(args[0]), kwargs)


def _hasattr(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return domain.has_attr(args[0], args[1]) if isinstance(args[1], str) else UNKNOWN


def _getattr(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    base, name = args[0], args[1]
    if not isinstance(name, str):
        return UNKNOWN
    there = domain.has_attr(base, name) if len(args) > 2 else True
    if isinstance(there, Unknown):
        return domain.get_attr(base, name) if isinstance(base, External) else UNKNOWN
    return domain.get_attr(base, name) if there else args[2]


def _setattr(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> None:
    if not isinstance(args[1], str):
        raise UndecidedError("an attribute is set under a name that is not known")
    domain.set_attr(args[0], args[1], args[2])


def _isinstance(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    value, kinds = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if isinstance(value, Unknown):
        return UNKNOWN
    answers = [domain.is_instance(value, kind) for kind in kinds]
    if any(answer is True for answer in answers):
        return True
    return UNKNOWN if any(isinstance(answer, Unknown) for answer in answers) else False


def _callable(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], Unknown):
        return UNKNOWN
    return isinstance(args[0], Bound) or not isinstance(args[0], (str, int, float, type(None), list, dict))


def _print(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> None:
    return None


def _ordered(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return dict(args[0]) if args and isinstance(args[0], dict) else {} if not args else _dict(domain, args, kwargs)


def _empty(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return dict(args[0]) if args and isinstance(args[0], dict) else {}


def _regular(name: str) -> Builtin:
    def known(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or not all(isinstance(a, str) for a in args):
            return UNKNOWN
        try:
            return regular(partial(getattr(re, name), args[0]), *args)
        except (re.error, TypeError, ValueError):
            return UNKNOWN

    return known


BUILTINS: Mapping[str, Builtin] = {
    **{f.__name__: _plainly(f) for f in (int, float, min, max, abs, sum, round)},
    **{f"math.{name}": _plainly(getattr(math, name)) for name in ("sqrt", "isqrt", "ceil", "floor", "prod", "log2")},
    **{f"re.{name}": _regular(name) for name in ("match", "search", "fullmatch", "sub", "split", "compile")},
    **{kind: _collected(kind) for kind in ("list", "tuple", "set")},
    "frozenset": _collected("set"),
    "len": _len,
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "dict": _dict,
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _empty,
    "sorted": _sorted,
    "reversed": _reversed,
    "str": _str,
    "bool": _bool,
    "any": _some(True),
    "all": _some(False),
    "iter": _iter,
    "next": _next,
    "filter": _filter,
    "map": _map,
    "itertools.chain": _chain,
    "itertools.chain.from_iterable": _chain_of,
    "hasattr": _hasattr,
    "getattr": _getattr,
    "setattr": _setattr,
    "isinstance": _isinstance,
    "callable": _callable,
    "print": _print,
}
