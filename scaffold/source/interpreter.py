"""The one interpreter of Python: control flow, names and calls; a domain defines the values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from scaffold.limits.bounded import Budget, TooLargeError
from scaffold.source.classes import Classes
from scaffold.source.expressions import EXPRESSIONS
from scaffold.source.frame import Conditions, Env, Frame, LoopContext, Path
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.scopes import Scopes
from scaffold.source.statements import STATEMENTS, unroll
from scaffold.source.values import Evidence, Func, PlacedError, Unknown

Handler = Callable[["Interpreter", Any, Frame], Any]
_READS = frozenset((ast.Name, ast.Attribute))


class Domain(Protocol):
    """Defines values, and how to go on at a condition or a loop whose outcome is unknown.

    Attributes:
        handlers: kinds of expressions and statements that this domain evaluates itself.
        measured: whether the size of every value counts as steps; else the domain bounds it.
        most_rows: rows that a comprehension makes at the most.
    """

    measured: bool
    most_rows: int

    @property
    def handlers(self) -> Mapping[type[ast.AST], Handler]: ...

    # Values.
    def place(self, node: ast.AST, frame: Frame) -> Evidence | None: ...
    def constant(self, value: Any, at: Evidence | None) -> Any: ...
    def builtin(self, name: str, at: Evidence | None) -> Any: ...
    def sequence(self, kind: str, items: list[Any], exact: bool, at: Evidence | None) -> Any: ...
    def table(self, pairs: list[tuple[Any, Any]], at: Evidence | None) -> Any: ...
    def mapping(self, rows: list[list[Any]], exact: bool, at: Evidence | None) -> Any: ...
    def slice(self, parts: list[Any], at: Evidence | None) -> Any: ...
    def text(self, parts: list[Any], node: ast.JoinedStr, at: Evidence | None) -> Any: ...

    # Operations.
    def operate(self, kind: type[ast.AST], args: list[Any], at: Evidence | None) -> Any: ...
    def compare(self, kind: type[ast.cmpop], left: Any, right: Any, at: Evidence | None) -> Any: ...
    def one_of(self, kind: type[ast.boolop], kept: list[Any], at: Evidence | None) -> Any: ...
    def get_attr(self, base: Any, name: str, at: Evidence | None) -> Any: ...
    def set_attr(self, base: Any, name: str, value: Any) -> None: ...
    def subscript(self, base: Any, key: Any, node: ast.Subscript, frame: Frame) -> Any: ...
    def put(self, base: Any, key: Any, value: Any, target: ast.Subscript, frame: Frame) -> None: ...
    def unpack(self, targets: list[ast.expr], value: Any, frame: Frame) -> None: ...
    def grow(self, kind: type[ast.operator], old: Any, value: Any) -> bool: ...
    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any], at: Evidence | None) -> Any: ...
    def call_method(
        self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any], at: Evidence | None
    ) -> Any: ...
    def keywords(self, value: Any) -> Mapping[str, Any]: ...
    def argument(self, name: str) -> Any: ...
    def result(self, frame: Frame, falls: bool, at: Evidence | None) -> Any: ...

    # What is known of them.
    def decide(self, value: Any) -> bool | None: ...
    def is_fixed(self, value: Any) -> bool: ...
    def iterate(self, value: Any) -> list[Any] | None: ...
    def open_items(self, value: Any, at: Evidence | None) -> list[Any]: ...
    def rows(self, value: Any, at: Evidence | None) -> tuple[list[Any], bool]: ...
    def turns(self, node: ast.For | ast.AsyncFor, source: Any) -> list[Any] | None: ...

    # Ways that execution may take.
    def other(self, node: ast.AST, frame: Frame) -> Any: ...
    def choose(self, node: ast.IfExp, cond: Any, frame: Frame) -> Any: ...
    def branch(self, node: ast.If, cond: Any, frame: Frame) -> bool: ...
    def open_loop(self, node: ast.For | ast.AsyncFor | ast.While, source: Any, frame: Frame) -> bool: ...
    def merge(self, envs: list[Env]) -> Env: ...
    def leaves(self, node: ast.Return | ast.Continue, value: Any, frame: Frame) -> None: ...
    def raises(self, node: ast.Raise, frame: Frame) -> None: ...


class Interpreter:
    """Executes Python as text over the values of a domain.

    Args:
        domain: its values.
        graph: the modules it reads.
        budget: the steps that it may take.
        classes: classes of the same modules that are read already.

    Attributes:
        path: the undecided conditions and loops around.
        stack: the functions around, the innermost last.
        scopes: global names.
        here: the statement that is being executed, and its module.
    """

    def __init__(self, domain: Domain, graph: ModuleGraph, budget: Budget, classes: Classes | None = None) -> None:
        self.domain, self.budget = domain, budget
        self.path = Path()
        self.stack: list[Frame] = []
        self.scopes = Scopes(graph, self.evaluate_global, classes)
        self.here: tuple[ModuleInfo, ast.stmt] | None = None
        self._handlers: dict[type[ast.AST], Handler] = {**EXPRESSIONS, **STATEMENTS, **domain.handlers}
        self._measured = domain.measured

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """Return the value of an expression."""
        budget, kind = self.budget, type(node)
        budget.spent += 1
        if budget.spent > budget.steps:
            raise budget.over()
        handler = self._handlers.get(kind)
        if handler is None:
            return self.domain.other(node, frame)
        if not self._measured or kind in _READS:
            return handler(self, node, frame)
        try:
            return budget.hold(handler(self, node, frame))
        except TooLargeError as error:
            return Unknown(str(error))

    def block(self, body: list[ast.stmt], frame: Frame) -> bool:
        """Execute statements; tell whether execution goes on behind them."""
        path, budget, handlers = self.path, self.budget, self._handlers
        pushed, depth = len(path.conditions), path.depth
        try:
            for statement in body:
                budget.spend()
                self.here = frame.module, statement
                handler = handlers.get(type(statement), self._other)
                if not handler(self, statement, frame):
                    return False
            return True
        except PlacedError as error:
            error.place = error.place or Evidence(frame.module.file, statement.lineno)
            raise
        finally:
            del path.conditions[pushed:]
            path.depth = depth

    @staticmethod
    def _other(run: Interpreter, node: ast.stmt, frame: Frame) -> bool:
        run.domain.other(node, frame)
        return True

    def evaluate_global(self, node: ast.expr, module: ModuleInfo) -> Any:
        """Evaluate an expression in a module's global scope, apart from the current execution."""
        path = self.path
        kept = path.depth, path.conditions, path.loops
        path.depth, path.conditions, path.loops = 0, [], []
        try:
            return self.evaluate(node, Frame(module))
        finally:
            path.depth, path.conditions, path.loops = kept

    def items(self, nodes: Iterable[ast.expr], frame: Frame) -> tuple[list[Any], bool]:
        """Return the values of expressions, starred ones item by item, and whether these are all of them."""
        items: list[Any] = []
        exact = True
        for node in nodes:
            if not isinstance(node, ast.Starred):
                items.append(self.evaluate(node, frame))
                continue
            value = self.evaluate(node.value, frame)
            known = self.domain.iterate(value)
            exact = exact and known is not None
            items.extend(known if known is not None else self.domain.open_items(value, self.domain.place(node, frame)))
        return items, exact

    def arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call, by position and by name."""
        args, _ = self.items(node.args, frame)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
                continue
            for name, item in self.domain.keywords(value).items():
                kwargs.setdefault(name, item)
        return args, kwargs

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Assign to a name, an attribute, an item, or several of them."""
        if isinstance(target, ast.Name):
            frame.env[target.id] = value
        elif isinstance(target, ast.Attribute):
            self.domain.set_attr(self.evaluate(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value, frame)
            self.domain.put(base, self.evaluate(target.slice, frame), value, target, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.domain.unpack(target.elts, value, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)

    def unroll(self, node: ast.For | ast.AsyncFor | ast.While, turns: Iterable[Any], frame: Frame) -> bool:
        """Execute a loop turn by turn; tell whether execution goes on behind it."""
        return unroll(self, node, turns, frame)

    @staticmethod
    def open_context(frame: Frame) -> LoopContext:
        """Enter a loop of a function."""
        context = LoopContext()
        frame.loops.append(context)
        return context

    def bind(self, func: Func, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> dict[str, Any]:
        """Bind arguments to parameters; return them by name, without the receiver."""
        spec = func.node.args
        positional = [*spec.posonlyargs, *spec.args]
        names = [a.arg for a in positional]
        given = list(args)
        if func.bound is not None and names and not _is_static(func.node):
            frame.env[names[0]] = func.bound
            names = names[1:]
        bound: dict[str, Any] = dict(zip(names, given, strict=False))
        if spec.vararg is not None:
            bound[spec.vararg.arg] = self.domain.sequence("tuple", given[len(names) :], True, None)
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        bound.update({k: v for k, v in kwargs.items() if k in known})
        if spec.kwarg is not None:
            extra = [[self.domain.constant(k, None), v] for k, v in kwargs.items() if k not in known]
            bound[spec.kwarg.arg] = self.domain.mapping(extra, "**" not in kwargs, None)
        defaults = list(zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults += [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]
        for argument, expression in defaults:
            if argument.arg not in bound and argument.arg not in frame.env:
                bound[argument.arg] = self.evaluate(expression, Frame(func.module, closure=func.closure))
        for name in known:
            if name not in bound:
                bound[name] = self.domain.argument(name)
        frame.env.update(bound)
        return bound

    def enter(self, func: Func) -> Frame:
        """Return a new activation of a function."""
        frame = Frame(func.module, func.node, func.owner, func.bound, closure=func.closure)
        frame.outside = len(self.path.conditions)
        frame.callers = (*(self.stack[-1].callers if self.stack else ()), frame.name)
        return frame

    def execute(self, func: Func, frame: Frame, at: Evidence | None = None) -> Any:
        """Execute a function whose arguments are bound, called at a place; return its result."""
        node, here, mark = func.node, self.here, self.path.mark()
        self.stack.append(frame)
        try:
            if isinstance(node, ast.Lambda):
                result = self.evaluate(node.body, frame)
            else:
                result = self.domain.result(frame, self.block(node.body, frame), at)
        finally:
            self.stack.pop()
            self.path.back(mark)
        # Where an error ends the execution, the place stays.
        self.here = here
        return result


def _is_static(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list
    )


__all__ = ["Conditions", "Domain", "Frame", "Handler", "Interpreter"]
