"""What a small function of a package makes of a name, worked out from its text.

Only what maps strings is understood: conditions, loops over tables, methods of strings and of containers, functions of
the tree that are as plain. Anything else ends the work with `NotPlainError`; nothing of the package is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scaffold.bounded import Budget, call, compare, joined, method, operate
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.plain_operations import BUILT_IN, TABLE, TEXT
from scaffold.check.model.values import UNKNOWN, known

_DEEPEST = 6
_MOST = 20_000
_OPERATORS = (ast.Add, ast.Sub)


class NotPlainError(Exception):
    """The function does something that is not understood."""


class RefusedNameError(Exception):
    """The function raises an exception for the name."""


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Broken(Exception):
    """``break`` (``goes_on`` false) or ``continue``."""

    def __init__(self, goes_on: bool) -> None:
        super().__init__()
        self.goes_on = goes_on


def effort() -> Budget:
    """Return what one question may take, the functions that are called on the way included."""
    return Budget(_MOST, NotPlainError, 10_000)


def answer(function: FunctionModel, *values: Any) -> Any:
    """Return what a function answers, a list of what it yields where it is a generator.

    Raises:
        NotPlainError: that cannot be worked out.
        RefusedNameError: the function raises.
    """
    return _answer(function, values, 0, effort())


def _answer(function: FunctionModel, values: Sequence[Any], depth: int, effort: Budget) -> Any:
    names = function.positional
    given = dict(zip(names, values, strict=False))
    for name in function.parameters:
        default = function.default(name)
        if name not in given and default is not None:
            given[name] = function.file.value(default)
            if not known(given[name]):
                raise NotPlainError
    if depth > _DEEPEST or len(values) > len(names) or set(given) != set(function.parameters):
        raise NotPlainError
    run = Run(function, given, depth, effort)
    try:
        run.body(function.node.body)
    except _Returned as end:
        return run.yielded if run.generates else end.value
    except (RecursionError, TypeError, ValueError, AttributeError, OverflowError, MemoryError):
        raise NotPlainError from None
    return run.yielded if run.generates else None


class Opaque:
    """A value that is handed on and of which nothing is known, such as a tensor; its methods give it back."""


class Run:
    """A function at work on names.

    Args:
        function: the function.
        names: values of its parameters; others are bound on the way.
        depth: how many functions are at work around it.
        effort: what is left of it.
    """

    def __init__(self, function: FunctionModel, names: dict[str, Any], depth: int, effort: Budget) -> None:
        self.function, self.names, self.depth, self.effort = function, names, depth, effort
        self.generates = bool(function.file.index.nodes(ast.Yield, function.node))
        self.yielded: list[Any] = []

    # Statements

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.step()
            self.statement(statement)

    def step(self) -> None:
        self.effort.spend()

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return):
            raise _Returned(self.value(node.value) if node.value is not None else None)
        if isinstance(node, ast.Raise):
            raise RefusedNameError
        if isinstance(node, ast.If):
            self.body(node.body if self.value(node.test) else node.orelse)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self.bind(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, self.value(node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and node.value.value is not None:
            self.yielded.append(self.value(node.value.value))
        elif isinstance(node, (ast.Continue, ast.Break)):
            raise _Broken(isinstance(node, ast.Continue))
        elif not isinstance(node, ast.Pass) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            raise NotPlainError

    def loop(self, node: ast.For) -> None:
        for item in self.value(node.iter):
            self.step()
            self.bind(node.target, item)
            try:
                self.body(node.body)
            except _Broken as end:
                if not end.goes_on:
                    return
        self.body(node.orelse)

    def bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (tuple, list)):
            if len(target.elts) != len(value):
                raise NotPlainError
            for part, item in zip(target.elts, value, strict=True):
                self.bind(part, item)
        else:
            raise NotPlainError

    # Expressions

    def value(self, node: ast.expr) -> Any:
        self.step()
        try:
            value = self.expression(node)
            return value if isinstance(node, ast.Name) else self.effort.hold(value)
        except (KeyError, IndexError, StopIteration):
            raise RefusedNameError from None
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise NotPlainError from None

    def expression(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in self.names and self.function.file.qualified(node) in ("len", "str"):
                return BUILT_IN[node.id]
            return self.names[node.id] if node.id in self.names else self.outside(node)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
            return kind(self.items(node.elts))
        if isinstance(node, ast.Dict):
            found: dict[Any, Any] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                found |= self.value(value) if key is None else {self.value(key): self.value(value)}
            return found
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.BoolOp):
            return self.joined(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            inner = self.value(node.operand)
            return not inner if isinstance(node.op, ast.Not) else -inner
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
            return operate(type(node.op), self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.Subscript):
            return self.value(node.value)[self.place(node.slice)]
        if isinstance(node, ast.JoinedStr):
            return joined(map(self.text, node.values))
        if isinstance(node, ast.Lambda):
            return self.function_of(node)
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return list(self.comprehended(node, lambda: self.value(node.elt)))
        if isinstance(node, ast.SetComp):
            return set(self.comprehended(node, lambda: self.value(node.elt)))
        if isinstance(node, ast.DictComp):
            return dict(self.comprehended(node, lambda: (self.value(node.key), self.value(node.value))))
        if isinstance(node, ast.Call):
            return self.called(node)
        raise NotPlainError

    def outside(self, node: ast.expr) -> Any:
        value = self.function.file.value(node)
        if value is UNKNOWN or not known(value):
            raise NotPlainError
        return value

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += self.value(node.value) if isinstance(node, ast.Starred) else [self.value(node)]
        return found

    def joined(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for part in node.values:
            value = self.value(part)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def compared(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            if not compare(type(op), left, right):
                return False
            left = right
        return True

    def place(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Slice):
            return self.value(node)
        return slice(*(self.value(part) if part is not None else None for part in (node.lower, node.upper, node.step)))

    def text(self, node: ast.expr) -> str:
        if not isinstance(node, ast.FormattedValue):
            return str(self.value(node))
        if node.format_spec is not None or node.conversion != -1:
            raise NotPlainError
        return str(self.value(node.value))

    def function_of(self, node: ast.Lambda) -> Callable[..., Any]:
        names = [argument.arg for argument in node.args.args]

        def call(*values: Any) -> Any:
            before = dict(self.names)
            self.names.update(zip(names, values, strict=True))
            try:
                return self.value(node.body)
            finally:
                self.names = before

        return call

    def comprehended(
        self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp, make: Callable[[], Any], at: int = 0
    ) -> Iterator[Any]:
        if at == len(node.generators):
            yield make()
            return
        part = node.generators[at]
        before = dict(self.names)
        for item in self.value(part.iter):
            self.step()
            self.bind(part.target, item)
            if all(self.value(test) for test in part.ifs):
                yield from self.comprehended(node, make, at + 1)
        self.names = before

    def called(self, node: ast.Call) -> Any:
        if any(item.arg is None for item in node.keywords):
            raise NotPlainError
        options = {item.arg: self.value(item.value) for item in node.keywords if item.arg is not None}
        target = node.func
        name = self.function.file.qualified(target)
        if name in BUILT_IN:
            return call(BUILT_IN[name], *self.items(node.args), **options)
        found = resolve(self.function.file, node, self.function.cls)
        if isinstance(found, FunctionModel):
            if options:
                raise NotPlainError
            return _answer(found, self.items(node.args), self.depth + 1, self.effort)
        if not isinstance(target, ast.Attribute):
            raise NotPlainError
        owner = self.value(target.value)
        if isinstance(owner, Opaque):
            return owner
        if (isinstance(owner, str) and target.attr in TEXT) or (isinstance(owner, dict) and target.attr in TABLE):
            return method(owner, target.attr, *self.items(node.args), **options)
        raise NotPlainError
