"""Operations on symbolic values: alternatives, merging, sameness, walking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeGuard

from scaffold.inspect.program.values import Attr, Call, Choice, Const, Index, Item, Obj, Op, Param, Seq, Slot
from scaffold.source.values import ClassRef, Evidence, External, Func, ModuleRef, Super, Unknown, Value

LEAVES = frozenset((Const, External, Index, ClassRef, Func, ModuleRef, Slot, Super, Unknown))
"""Values without operands."""


def class_name(value: Value) -> str | None:
    """Return the class of a value, if its construction shows it."""
    if isinstance(value, Obj):
        return value.cls.name
    if isinstance(value, Call):
        func: Value = value.func
        while isinstance(func, Attr):
            func = func.base
        if isinstance(func, ClassRef):
            return func.cls.name
        if isinstance(func, External):
            return next((part for part in reversed(func.path.split(".")) if part[:1].isupper()), None)
    return None


def truth_by_parts(cond: Value, ask: Callable[[Value], bool | None]) -> bool | None:
    """The truth of a negation or of parts joined by ``and`` or ``or``, as far as that of the parts decides it."""
    if isinstance(cond, Op) and cond.op == "not":
        inner = ask(cond.args[0])
        return None if inner is None else not inner
    if isinstance(cond, Op) and cond.op in ("and", "or"):
        answers = [ask(arg) for arg in cond.args]
        decisive = cond.op == "or"
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive
    return None


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def asks_for_none(cond: Value | None) -> TypeGuard[Op]:
    """Whether a condition is a comparison with None."""
    return isinstance(cond, Op) and cond.op in ("is", "isnot") and is_none(cond.args[1])


def options(value: Value | None) -> list[Value]:
    """The alternatives of a value, choices flattened; none where there is no value."""
    if not isinstance(value, Choice):
        return [] if value is None else [value]
    found: dict[int, Value] = {}
    stack: list[Value] = [value]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Choice):
            stack.extend(reversed(node.options))
        else:
            found[id(node)] = node
    return list(found.values())


def join(values: list[Value], cond: Value | None = None, at: Evidence | None = None) -> Value:
    """Merge the alternatives of a value; equal ones fall together, tuples join item by item."""
    unique: list[Value] = []
    for value in values:
        for other in unique:
            if same(value, other):
                break
        else:
            unique.append(value)
    if len(unique) == 1:
        return unique[0]
    first = unique[0]
    if (
        isinstance(first, Seq)
        and first.kind == "tuple"
        and all(isinstance(v, Seq) and v.kind == "tuple" and len(v.items) == len(first.items) for v in unique)
    ):
        columns = zip(*(v.items for v in unique if isinstance(v, Seq)), strict=True)
        return Seq("tuple", [join(list(column), cond, at) for column in columns], at=first.at)
    return Choice(unique, cond if len(unique) == len(values) == 2 else None, at=at or first.at)


def same(a: Value, b: Value) -> bool:
    """Return, without an exhaustive comparison, whether two values are the same."""
    if a is b:
        return True
    if isinstance(a, Const) and isinstance(b, Const):
        return type(a.value) is type(b.value) and bool(a.value == b.value)
    if isinstance(a, Slot) and isinstance(b, Slot):
        return a.name == b.name
    if isinstance(a, ClassRef) and isinstance(b, ClassRef):
        return a.cls is b.cls
    if isinstance(a, Attr) and isinstance(b, Attr):
        return a.name == b.name and same(a.base, b.base)
    if isinstance(a, Item) and isinstance(b, Item):
        return same(a.base, b.base) and same(a.key, b.key)
    if isinstance(a, Param) and isinstance(b, Param):
        return (a.root, a.key) == (b.root, b.key) and (
            a.default is b.default or (a.default is not None and b.default is not None and same(a.default, b.default))
        )
    return False


def only_member(value: Value) -> Obj | None:
    """The one object that an item of a list can be, whichever it is; lists in lists too."""
    pending, found = [value], dict[int, Obj]()
    for _ in range(16):
        if not pending:
            break
        node = pending.pop()
        if isinstance(node, Choice):
            pending.extend(options(node))
        elif isinstance(node, Item) and isinstance(node.base, Seq):
            pending.extend(node.base.items)
        elif isinstance(node, Obj):
            found[id(node)] = node
        else:
            return None
    return next(iter(found.values())) if len(found) == 1 and not pending else None


def walk(value: Value, stop: set[int] | None = None, seen: set[int] | None = None) -> Iterator[Value]:
    """Yield a value and everything it was made from, each once; nodes in ``stop`` are not entered.

    ``seen`` are the nodes that another walk yielded, which this one adds to and does not yield again.
    """
    return walk_all([value], stop, seen)


def walk_all(values: Iterable[Value], stop: set[int] | None = None, seen: set[int] | None = None) -> Iterator[Value]:
    """Yield values and everything they were made from, each once, as ``walk`` does."""
    seen = set() if seen is None else seen
    for value in values:
        stack = [value]
        while stack:
            node = stack.pop()
            key = id(node)
            if key in seen:
                continue
            seen.add(key)
            yield node
            if type(node) not in LEAVES and (stop is None or key not in stop):
                stack += node.parts()[::-1]


def reach(values: Iterable[Value], into: Callable[[Value], Iterable[Value]]) -> Iterator[Value]:
    """Yield values and what ``into`` gives for each, and so on, in that order and each once."""
    seen: set[int] = set()
    stack = list(values)[::-1]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack += list(into(node))[::-1]


def reach_last(values: Iterable[Value], into: Callable[[Value], Iterable[Value]]) -> Iterator[Value]:
    """Yield what ``reach`` does, of values and of what ``into`` gives the last first."""
    seen: set[int] = set()
    stack = list(values)
    while stack:
        node = stack.pop()
        key = id(node)
        if key not in seen:
            seen.add(key)
            yield node
            if type(node) not in LEAVES:
                stack += into(node)


class Search:
    """Whether a wanted node went into a value; nodes searched without success are not searched again.

    For values that do not change any more, so not while a pipeline is executed.
    """

    def __init__(
        self,
        wanted: Callable[[Value], bool],
        stop: Iterable[int] = (),
        closed: Callable[[Value], bool] | None = None,
    ) -> None:
        self._wanted = wanted
        self._closed = closed
        self._stop = frozenset(stop)
        self._vain: dict[int, Value] = {}

    def __call__(self, value: Value) -> bool:
        """Tell whether there is such a node; nodes in ``stop`` and those that are ``closed`` are not entered."""
        seen: dict[int, Value] = {}
        stack = [value]
        while stack:
            node = stack.pop()
            key = id(node)
            if key in seen or key in self._vain:
                continue
            seen[key] = node
            if self._wanted(node):
                return True
            if type(node) not in LEAVES and key not in self._stop and not (self._closed and self._closed(node)):
                stack += node.parts()[::-1]
        self._vain.update(seen)
        return False


def depends(value: Value, on: Value) -> bool:
    """Tell whether ``on`` went into ``value``."""
    return any(node is on for node in walk(value))
