"""One abstract execution: the domain of symbolic values that the interpreter works on, put together from its parts."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from scaffold.inspect.program import conditions
from scaffold.inspect.program.attributes import Attributes
from scaffold.inspect.program.branches import Branches
from scaffold.inspect.program.calls import Calls
from scaffold.inspect.program.containers import Containers
from scaffold.inspect.program.items import Items
from scaffold.inspect.program.library import Library
from scaffold.inspect.program.loops import Loops
from scaffold.inspect.program.operations import Operations
from scaffold.inspect.program.outside_data import OutsideData
from scaffold.inspect.program.request import Requests
from scaffold.inspect.program.trace import Trace
from scaffold.inspect.program.values import MOST_ITEMS, Attr, Call, Conf, Const, Item, Param
from scaffold.limits.bounded import Budget
from scaffold.limits.cpu_limit import CpuLimitError
from scaffold.source.classes import ClassInfo
from scaffold.source.frame import Frame, Path
from scaffold.source.interpreter import Handler, Interpreter
from scaffold.source.modules import ModuleGraph
from scaffold.source.scopes import Scopes
from scaffold.source.values import Evidence, External, Unknown, Value
from scaffold.upstream.source import UpstreamSource

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders

INLINE_STEPS = 60_000
"""Nodes evaluated before calls are no longer followed."""
LOOP_STEPS = 10 * INLINE_STEPS
"""Nodes evaluated before loops are no longer followed turn by turn."""
STEPS = 1000 * INLINE_STEPS
MAX_DEPTH = 16


class Execution:
    """Symbolic values, where both ways of an undecided condition are followed.

    Args:
        source: the version that is read.
        with_media: whether the request brings images or videos.
        with_everything: whether it sets all that it may.
        model_name: what the index beside the weights says that the pipeline is: the registry's key that leads to it.
    """

    measured = False
    most_rows = MOST_ITEMS

    def __init__(
        self,
        source: UpstreamSource,
        *,
        with_media: bool = False,
        with_everything: bool = False,
        model_name: str | None = None,
        headers: CheckpointHeaders | None = None,
    ) -> None:
        self.headers = headers
        self.with_media, self.with_everything, self.model_name = with_media, with_everything, model_name
        self.demanded: set[str] = set()
        """Keys of the prompt without which the pipeline refuses a request."""
        self.constructing = False
        self.broken = 0
        """How many functions that the entry calls itself always raise."""
        self.trace = Trace()
        self.filling: list[str] = []
        """The request's fields whose absence the enclosing conditions test."""
        self.failures: list[Exception] = []
        self.put_in: dict[tuple[str, str], Value] = {}
        self.overwritten: dict[int, Value] = {}
        """Values that overwrite a field of every request, by ``id``."""
        self.imposed: dict[int, Value] = {}
        """Conditions on one side of which a request is refused, whatever it says; by ``id``."""
        self.erased: set[tuple[str, str]] = set()
        """Roots and keys of the request's fields that are taken out again where a request sets them."""
        self.sampling_class: ClassInfo | None = None
        """The class of the request's sampling parameters."""
        self.budget = Budget(STEPS, lambda: CpuLimitError("the source takes too many steps to follow"))
        self.handlers: dict[type[ast.AST], Handler] = {
            ast.Match: lambda _, node, frame: self.branches.run_match(node, frame)
        }
        self.interpreter = Interpreter(self, ModuleGraph(source), self.budget)
        self.scopes: Scopes = self.interpreter.scopes
        self.path: Path = self.interpreter.path
        self._attrs: dict[tuple[int, str], Attr] = {}
        self._items: dict[tuple[int, object], Item] = {}
        self._alive: list[Value] = []
        self.attributes: Attributes = Attributes(self)
        self.items: Items = Items(self)
        self.operations: Operations = Operations(self)
        self.branches: Branches = Branches(self)
        self.loops: Loops = Loops(self)
        self.containers: Containers = Containers(self)
        self.library: Library = Library(self)
        self.outside = OutsideData(self)
        self.scopes.changed = self.outside.changed
        self.calls: Calls = Calls(self)
        self.requests: Requests = Requests(self)
        # The methods that the interpreter needs of a domain, and the parts need of each other.
        self.get_attr, self.set_attr = self.attributes.get_attr, self.attributes.set_attr
        self.get_item, self.set_item = self.items.get_item, self.items.set_item
        self.subscript, self.put = self.items.subscript, self.items.put
        self.operate, self.compare = self.operations.operate, self.operations.compare
        self.one_of, self.text = self.operations.one_of, self.operations.text
        self.open_loop, self.turns, self.rows = self.loops.open_loop, self.loops.turns, self.loops.rows
        self.branch, self.choose = self.branches.branch, self.branches.choose
        self.merge, self.leaves = self.branches.merge, self.branches.leaves
        self.sequence, self.table = self.containers.sequence, self.containers.table
        self.mapping, self.slice = self.containers.mapping, self.containers.slice
        self.iterate, self.open_items = self.containers.iterate, self.containers.open_items
        self.grow, self.unpack = self.containers.grow, self.containers.unpack
        self.call, self.call_method = self.calls.call, self.calls.call_method
        self.keywords, self.result = self.calls.keywords, self.calls.result

    @property
    def may_inline(self) -> bool:
        """Whether another call is followed."""
        return self.budget.spent < INLINE_STEPS and len(self.interpreter.stack) < MAX_DEPTH

    def conf(self, file: str, path: tuple[str, ...], default: Value | None, at: Evidence | None) -> Conf:
        """A value of a file beside the checkpoint, with what that of the given one says."""
        stated: Any = self.headers.configs.get(file) if self.headers is not None else None
        for key in path:
            stated = stated.get(key) if isinstance(stated, dict) else None
        if self.headers is None or not isinstance(stated, bool | int | float | str):
            return Conf(file, path, default, at=at)
        return Conf(file, path, default, Const(stated, at=Evidence(f"{self.headers.source}/{file}", 1)), at=at)

    @property
    def may_unroll(self) -> bool:
        """Whether another loop is followed turn by turn."""
        return self.budget.spent < LOOP_STEPS

    @staticmethod
    def place(node: ast.AST, frame: Frame) -> Evidence:
        return frame.module.place(node)

    @staticmethod
    def constant(value: object, at: Evidence | None) -> Const:
        return Const(value, at=at)

    @staticmethod
    def builtin(name: str, at: Evidence | None) -> External:
        return External("super" if name == "super" else f"builtins.{name}", at=at)

    @staticmethod
    def argument(name: str) -> Param:
        return Param("argument", name)

    @staticmethod
    def decide(value: Value) -> bool | None:
        return conditions.decide(value)

    @staticmethod
    def is_fixed(value: Value) -> bool:
        """Whether a value is more than what a condition on it takes it for by default."""
        return not isinstance(value, (Param, Conf))

    def raises(self, node: ast.Raise, frame: Frame) -> None:
        return None

    def other(self, node: ast.AST, frame: Frame) -> Value:
        return Unknown(type(node).__name__, at=self.place(node, frame))

    def symbol_attr(self, base: Value, name: str, at: Evidence | None) -> Attr:
        """Return the symbol of an unknown attribute, the same one each time."""
        key = (id(base), name)
        found = self._attrs.get(key)
        if found is None:
            found = self._attrs[key] = Attr(base, name, at=at)
            self._alive.append(base)
        return found

    def symbol_item(self, base: Value, key: Value, at: Evidence | None) -> Item:
        """Return the symbol of an unknown item, the same one each time for a constant key."""
        if not isinstance(key, Const):
            return Item(base, key, at=at)
        index = (id(base), key.value if key.value.__hash__ is not None else repr(key.value))
        found = self._items.get(index)
        if found is None:
            found = self._items[index] = Item(base, key, at=at)
            self._alive.append(base)
        return found

    def opaque(self, func: Value, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Call:
        """A call that is not followed."""
        return Call(func, args, kwargs, tuple(self.path.loops), at=at)
