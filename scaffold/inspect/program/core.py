"""State of one abstract execution: frames, guards, the trace, and names of the global scope."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program.classes import Classes, ClassInfo
from scaffold.inspect.program.modules import Import, ModuleGraph, ModuleInfo
from scaffold.inspect.program.trace import Conditions, Trace
from scaffold.inspect.program.values import (
    Attr,
    Call,
    ClassRef,
    Const,
    External,
    Func,
    Item,
    ModuleRef,
    Param,
    Unknown,
    Value,
)
from scaffold.upstream.source import PACKAGE, UpstreamSource

INLINE_BUDGET = 60_000
"""Nodes evaluated before calls are no longer followed."""
MAX_DEPTH = 16


@dataclass(eq=False)
class LoopContext:
    """The exits of the loop being executed."""

    breaks: list[dict[str, Value]] = field(default_factory=list)
    continues: list[dict[str, Value]] = field(default_factory=list)


@dataclass(eq=False)
class Frame:
    """One activation of a function, a module or a class body."""

    module: ModuleInfo
    node: ast.AST | None = None
    owner: ClassInfo | None = None
    bound: Value | None = None
    env: dict[str, Value] = field(default_factory=dict)
    closure: dict[str, Value] | None = None
    returns: list[tuple[Value, Conditions]] = field(default_factory=list)
    """What was returned, and under which conditions of this activation."""
    outside: int = 0
    """How many conditions held when this activation began."""
    yields: list[Value] = field(default_factory=list)
    loops: list[LoopContext] = field(default_factory=list)
    callers: tuple[str, ...] = ()
    """Names of the functions around, this one's the last."""


class Core:
    """What every part of the interpreter shares."""

    def __init__(self, source: UpstreamSource) -> None:
        self.source = source
        self.graph = ModuleGraph(source)
        self.with_media = False
        self.with_everything = False
        self.model_name: str | None = None
        """What the index beside the weights says that the pipeline is: the registry's key that leads to it."""
        self.demanded: set[str] = set()
        """Keys of the prompt without which the pipeline refuses a request."""
        self.constructing = False
        self.broken = 0
        """How many functions that the entry calls itself always raise."""
        self.classes = Classes(self)
        self.trace = Trace()
        self.steps = 0
        self.depth = 0
        self.conditions: list[tuple[Value, bool]] = []
        self.loop_stack: list[int] = []
        self.rows: list[Value] = []
        self.branch_marks: list[int] = []
        self.branches: list[tuple[int, Value, bool]] = []
        """The branches of undecided conditions around: how deep they stand, the condition, and its truth there."""
        self.filling: list[str] = []
        """The request's fields for whose absence the statements around were tested."""
        self.stack: list[Frame] = []
        self.failures: list[Exception] = []
        self.put_in: dict[tuple[str, str], Value] = {}
        self.overwritten: dict[int, Value] = {}
        """What was put over a field of the request whatever a request says; by ``id``."""
        self.imposed: dict[int, Value] = {}
        """Conditions on one side of which a request is refused, whatever it says; by ``id``."""
        self.erased: set[tuple[str, str]] = set()
        """Roots and keys of the request's fields that are taken out again where a request sets them."""
        self._filled: dict[int, tuple[Value, list[Value], Value]] = {}
        """What statements have put into attributes that were empty; by ``id`` of the statement."""
        self._evaluators: dict[type[ast.expr], Callable[..., Value]] = {}
        self._globals: dict[tuple[str, str], Value] = {}
        self._attrs: dict[tuple[int, str], Attr] = {}
        self._items: dict[tuple[int, object], Item] = {}
        self._alive: list[Value] = []

    # Defined by the other parts.
    def evaluate(self, node: ast.expr, frame: Frame) -> Value:
        raise NotImplementedError

    def get_attr(self, base: Value, name: str, at: Evidence | None = None) -> Value:
        raise NotImplementedError

    def call(self, func: Value, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        raise NotImplementedError

    def call_method(
        self, receiver: Value, name: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
    ) -> Value:
        raise NotImplementedError

    def run_block(self, body: list[ast.stmt], frame: Frame) -> bool:
        raise NotImplementedError

    def decide(self, value: Value) -> bool | None:
        raise NotImplementedError

    def iterate(self, value: Value) -> list[Value] | None:
        raise NotImplementedError

    def run_filling(self, param: Param | None, body: list[ast.stmt], frame: Frame) -> bool:
        """Execute statements that stand behind a test for the absence of a request's field, where it is one."""
        self.filling.append(param.key if param is not None else "")
        try:
            return self.run_block(body, frame)
        finally:
            self.filling.pop()

    @property
    def may_inline(self) -> bool:
        return self.steps < INLINE_BUDGET and len(self.stack) < MAX_DEPTH

    @staticmethod
    def at(node: ast.AST, frame: Frame) -> Evidence:
        return Evidence(frame.module.file, getattr(node, "lineno", 1))

    def symbol_attr(self, base: Value, name: str, at: Evidence | None) -> Attr:
        """An attribute that is not known better; the same one each time."""
        key = (id(base), name)
        found = self._attrs.get(key)
        if found is None:
            found = self._attrs[key] = Attr(base, name, at=at)
            self._alive.append(base)
        return found

    def symbol_item(self, base: Value, key: Value, at: Evidence | None) -> Item:
        """An item that is not known better; the same one each time for a constant key."""
        if not isinstance(key, Const):
            return Item(base, key, at=at)
        index = (id(base), key.value if key.value.__hash__ is not None else repr(key.value))
        found = self._items.get(index)
        if found is None:
            found = self._items[index] = Item(base, key, at=at)
            self._alive.append(base)
        return found

    def lookup_global(self, module: ModuleInfo, name: str) -> Value | None:
        """Find a name in a module's global scope, following imports; None where it has none."""
        key = (module.name, name)
        if key in self._globals:
            return self._globals[key]
        self._globals[key] = Unknown("recursive definition")
        value = self._find_global(module, name)
        if value is None:
            del self._globals[key]
        else:
            self._globals[key] = value
        return value

    def _find_global(self, module: ModuleInfo, name: str) -> Value | None:
        node = module.definitions.get(name)
        if node is not None:
            at = Evidence(module.file, node.lineno)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return Func(node, module, at=at)
            if isinstance(node, ast.ClassDef):
                return ClassRef(self.classes.get(node, module), at=at)
            return self.evaluate_global(node, module)
        bound = module.imports.get(name)
        if bound is not None:
            return self.resolve_import(bound)
        for star in module.stars:
            target = self.graph.find(star)
            if target is not None and not name.startswith("_"):
                value = self.lookup_global(target, name)
                if value is not None:
                    return value
        return None

    def resolve_import(self, bound: Import) -> Value:
        """The value of a name bound by an import."""
        target = self.graph.find(bound.module)
        if bound.name is None:
            return ModuleRef(target) if target is not None else External(bound.module)
        if target is not None:
            value = self.lookup_global(target, bound.name)
            if value is not None:
                return value
        if bound.module == PACKAGE or bound.module.startswith(PACKAGE + "."):
            submodule = self.graph.find(f"{bound.module}.{bound.name}")
            if submodule is not None:
                return ModuleRef(submodule)
        return External(f"{bound.module}.{bound.name}")

    def evaluate_global(self, node: ast.expr, module: ModuleInfo) -> Value:
        """Evaluate an expression in a module's global scope, undisturbed by what is being executed."""
        depth, self.depth = self.depth, 0
        conditions, self.conditions = self.conditions, []
        loops, self.loop_stack = self.loop_stack, []
        try:
            return self.evaluate(node, Frame(module))
        finally:
            self.depth, self.conditions, self.loop_stack = depth, conditions, loops

    def opaque(self, func: Value, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Call:
        return Call(func, args, kwargs, tuple(self.loop_stack), at=at)
