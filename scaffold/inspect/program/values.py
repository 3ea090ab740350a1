"""Symbolic values: what an expression of the inspected source stands for.

Nodes form a graph that may be cyclic through loops; every node knows the place that made it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import Evidence

if TYPE_CHECKING:
    from scaffold.inspect.program.classes import ClassInfo
    from scaffold.inspect.program.modules import ModuleInfo


@dataclass(eq=False)
class Value:
    """Anything; ``at`` is where it was computed."""

    at: Evidence | None = field(default=None, kw_only=True, repr=False)

    def parts(self) -> list[Value]:
        """The values this one was made from."""
        return []


@dataclass(eq=False)
class Const(Value):
    value: Any


@dataclass(eq=False)
class Unknown(Value):
    reason: str = ""


@dataclass(eq=False)
class Param(Value):
    """Something the user or the engine gives: a request field, an extra argument, an engine option.

    ``root`` is ``sampling_params``, ``extra_args``, ``prompt``, ``request``, ``od_config`` or ``argument``.
    """

    root: str
    key: str
    default: Value | None = None

    def parts(self) -> list[Value]:
        return [self.default] if self.default is not None else []


@dataclass(eq=False)
class Conf(Value):
    """A value of a JSON file beside the checkpoint; ``path`` are its keys."""

    file: str
    path: tuple[str, ...]
    default: Value | None = None

    def parts(self) -> list[Value]:
        return [self.default] if self.default is not None else []


@dataclass(eq=False)
class Slot(Value):
    """An attribute that holds None until somebody injects an object."""

    name: str


@dataclass(eq=False)
class ModuleRef(Value):
    module: ModuleInfo


@dataclass(eq=False)
class External(Value):
    """A name of a package that is not read, such as ``torch.linspace``."""

    path: str


@dataclass(eq=False)
class ClassRef(Value):
    cls: ClassInfo


@dataclass(eq=False)
class Func(Value):
    """A function of the source, with what it closes over and is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: ModuleInfo
    owner: ClassInfo | None = None
    bound: Value | None = None
    closure: dict[str, Value] | None = None

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False)
class Super(Value):
    obj: Value
    owner: ClassInfo


@dataclass(eq=False)
class Obj(Value):
    """An instance of a class of the source; its ``__init__`` runs on first use."""

    cls: ClassInfo
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    attrs: dict[str, Value] = field(default_factory=dict)
    ready: bool = False
    depth: int = 0
    json_file: str | None = None
    root: str | None = None

    def parts(self) -> list[Value]:
        return [*self.args, *self.kwargs.values()]


@dataclass(eq=False)
class Seq(Value):
    """A list, tuple or set; ``exact`` says that ``items`` are all of it, in order."""

    kind: str
    items: list[Value]
    exact: bool = True
    depth: int = 0
    appends: list[tuple[Value, int]] = field(default_factory=list)

    def parts(self) -> list[Value]:
        return list(self.items)


@dataclass(eq=False)
class Map(Value):
    items: dict[Any, Value]
    exact: bool = True
    depth: int = 0

    def parts(self) -> list[Value]:
        return list(self.items.values())


@dataclass(eq=False)
class Attr(Value):
    base: Value
    name: str

    def parts(self) -> list[Value]:
        return [self.base]


@dataclass(eq=False)
class Item(Value):
    base: Value
    key: Value

    def parts(self) -> list[Value]:
        return [self.base, self.key]


@dataclass(eq=False)
class Slice(Value):
    lower: Value | None
    upper: Value | None
    step: Value | None = None

    def parts(self) -> list[Value]:
        return [v for v in (self.lower, self.upper, self.step) if v is not None]


@dataclass(eq=False)
class Call(Value):
    """A call that was not followed."""

    func: Value
    args: list[Value]
    kwargs: dict[str, Value]
    loops: tuple[int, ...] = ()
    writes: list[Value] = field(default_factory=list)

    def parts(self) -> list[Value]:
        return [self.func, *self.args, *self.kwargs.values(), *self.writes]

    @property
    def name(self) -> str:
        """The last name of what is called."""
        func = self.func
        if isinstance(func, Attr):
            return func.name
        if isinstance(func, External):
            return func.path.rpartition(".")[2]
        if isinstance(func, Func):
            return func.name
        if isinstance(func, ClassRef):
            return func.cls.name
        return ""

    def argument(self, position: int, *names: str) -> Value | None:
        """The argument at ``position`` or under one of ``names``."""
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else None


@dataclass(eq=False)
class Op(Value):
    """An operator on values: ``+ - * / // % ** @ neg not and or == != < <= > >= is isnot in notin format``."""

    op: str
    args: list[Value]

    def parts(self) -> list[Value]:
        return list(self.args)


@dataclass(eq=False)
class Choice(Value):
    """One of several values; with ``cond``, the first where it holds and the second where not."""

    options: list[Value]
    cond: Value | None = None

    def parts(self) -> list[Value]:
        return list(self.options)


@dataclass(eq=False)
class Elem(Value):
    """The item of a loop's turn."""

    source: Value
    loop: int

    def parts(self) -> list[Value]:
        return [self.source]


@dataclass(eq=False)
class Index(Value):
    """The number of a loop's turn, counted from zero."""

    loop: int
    count: Value | None = None


@dataclass(eq=False)
class Carried(Value):
    """A variable that a loop updates; ``final`` is its value at the end of a turn."""

    name: str
    loop: int
    init: Value | None
    final: Value | None = None

    def parts(self) -> list[Value]:
        return [v for v in (self.init, self.final) if v is not None]


NONE = Const(None)


def class_name(value: Value) -> str | None:
    """The class that a value is an instance of, where its construction tells."""
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


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def options(value: Value) -> list[Value]:
    """The alternatives of a value, choices flattened."""
    if not isinstance(value, Choice):
        return [value]
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
        if not any(same(value, other) for other in unique):
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
    """Tell whether two values are one and the same, cheaply."""
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


def walk(value: Value, stop: set[int] | None = None) -> Iterator[Value]:
    """Yield a value and everything it was made from, each once; nodes in ``stop`` are not entered."""
    stack = [value]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if stop is None or id(node) not in stop:
            stack.extend(reversed(node.parts()))


def depends(value: Value, on: Value) -> bool:
    """Tell whether ``on`` went into ``value``."""
    return any(node is on for node in walk(value))
