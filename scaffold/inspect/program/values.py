"""Symbolic values: what an expression of the inspected source stands for.

Nodes form a graph that may be cyclic through loops; every node knows the place that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.source.values import ClassRef, External, Func, Value

if TYPE_CHECKING:
    from scaffold.source.classes import ClassInfo

MOST_ITEMS = 4096
"""Items that a list keeps; of a longer one not all are known."""


@dataclass(eq=False)
class Const(Value):
    value: Any


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
    """A value of a JSON file beside the checkpoint; ``path`` are its keys, ``stated`` is what a given one says."""

    file: str
    path: tuple[str, ...]
    default: Value | None = None
    stated: Value | None = None

    def parts(self) -> list[Value]:
        return [value for value in (self.default, self.stated) if value is not None]


@dataclass(eq=False)
class Slot(Value):
    """An attribute that holds None until somebody injects an object."""

    name: str


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
    filled: Value | None = None
    """Data outside the source that may have set any of its attributes."""

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

    def __post_init__(self) -> None:
        if len(self.items) > MOST_ITEMS:
            self.items, self.exact = self.items[:MOST_ITEMS], False

    def parts(self) -> list[Value]:
        return list(self.items)


@dataclass(eq=False)
class Map(Value):
    """A dictionary; ``maybe`` are keys that a condition may have left out, ``unkeyed`` what other keys hold.

    ``unasked`` are those of ``maybe`` that are left out where a request sets nothing.
    """

    items: dict[Any, Value]
    exact: bool = True
    depth: int = 0
    maybe: set[Any] = field(default_factory=set)
    unasked: set[Any] = field(default_factory=set)
    unkeyed: list[Value] = field(default_factory=list)
    owner: Obj | None = None
    """The object whose attributes it holds."""

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

    @property
    def receiver(self) -> Any:
        """What a method is called on; None of anything else."""
        return (
            self.func.base if isinstance(self.func, Attr) else self.func.bound if isinstance(self.func, Func) else None
        )

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


@dataclass(eq=False)
class Carried(Value):
    """A variable that a loop updates; ``final`` is its value at the end of a turn.

    ``found_in`` tells whether the variable went into a value, once the loop has been executed.
    """

    name: str
    loop: int
    init: Value | None
    final: Value | None = None
    found_in: Callable[[Value], bool] | None = field(default=None, repr=False)

    def parts(self) -> list[Value]:
        return [v for v in (self.init, self.final) if v is not None]


NONE = Const(None)
