"""What an abstract execution leaves behind for the questions to read."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from scaffold.inspect.program.values import Attr, Carried
from scaffold.source.values import Evidence, Value

Conditions = tuple[tuple[Value, bool], ...]


@dataclass(eq=False)
class CallRecord:
    """One call: followed (``func`` is then a function of the source) or not."""

    func: Value
    args: list[Value]
    kwargs: dict[str, Value]
    result: Value
    at: Evidence | None
    loops: tuple[int, ...]
    conditions: Conditions
    callers: tuple[str, ...]
    bound: dict[str, Value] = field(default_factory=dict)
    receiver: Value | None = None
    method: str = ""

    @property
    def held_by(self) -> Value | None:
        """What the method belongs to, also where it was kept under another name before it was called."""
        if self.receiver is not None:
            return self.receiver
        return self.func.base if isinstance(self.func, Attr) else None

    @property
    def arguments(self) -> list[Value]:
        """All arguments, those by position first."""
        return [*self.args, *self.kwargs.values()]

    @property
    def named(self) -> dict[str, Value]:
        """The arguments by the parameters that they are bound to; of a call that is not followed, those by name."""
        return self.bound or self.kwargs


@dataclass(eq=False)
class LoopRecord:
    """One loop whose number of turns is not known: what it runs over and what it carries on."""

    number: int
    node: ast.For | ast.AsyncFor | ast.While
    at: Evidence
    source: Value | None
    carried: dict[str, Carried]
    conditions: Conditions
    function: str
    owner: str | None
    outer: tuple[int, ...]


@dataclass(eq=False)
class StringEdit:
    """A string made from another by an operation on it, with what was known of the other."""

    value: Value
    conditions: Conditions
    row: Value | None


@dataclass(eq=False)
class Test:
    """A condition that was not decided."""

    cond: Value
    at: Evidence
    loops: tuple[int, ...]
    conditions: Conditions
    function: str


@dataclass(eq=False)
class Skip:
    """A ``continue`` or ``return`` under conditions, with the number of calls its branch made before."""

    conditions: Conditions
    at: Evidence
    calls: int


@dataclass(eq=False)
class Write:
    """An attribute or an item that was assigned to something that is not read, such as an object of a library."""

    base: Value
    name: str
    value: Value
    at: Evidence | None
    item: bool = False


@dataclass
class Trace:
    calls: list[CallRecord] = field(default_factory=list)
    loops: dict[int, LoopRecord] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)
    reads: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    own: set[tuple[str, str]] = field(default_factory=set)
    """Roots and keys of the request that are put in whatever it says, and were not read before."""
    put: set[tuple[str, str]] = field(default_factory=set)
    """Roots and keys of the request that are put in on some way."""
    demands: dict[tuple[tuple[str, str], ...], Evidence | None] = field(default_factory=dict)
    """Roots and keys of which a request has to bring one, else it is refused."""
    edits: list[StringEdit] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
