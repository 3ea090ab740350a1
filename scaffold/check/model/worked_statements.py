"""Statements of a text that is worked out."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from scaffold.bounded import call
from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.worked_values import (
    OPAQUE,
    Bound,
    BrokenError,
    External,
    Inner,
    RefusedError,
    ReturnedError,
    Stub,
    number,
)

if TYPE_CHECKING:
    from scaffold.check.model.worked_out import Worked

DEEPEST = 24


class Statements(ABC):
    """A function, or a nested one, on its way.

    Args:
        work: what it is part of.
        function: the function of the tree.
        cls: what ``self`` and ``cls`` are there.
        names: its local names so far.
        depth: how many calls lead to it.
    """

    def __init__(
        self, work: Worked, function: FunctionModel, cls: ClassModel | None, names: dict[str, Any], depth: int
    ) -> None:
        if depth > DEEPEST:
            raise NotPlainError
        self.work, self.function, self.cls, self.names, self.depth = work, function, cls, names, depth
        self.file: PythonFile = function.file
        self.yielded: list[Any] | None = None

    def run(self, node: ast.AST) -> Any:
        self.yielded = [] if self.work.generates(self.file, node) else None
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body)
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            self.body(node.body)
        except ReturnedError as end:
            return self.yielded if self.yielded is not None else end.value
        return self.yielded

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def truth(self, value: Any) -> bool:
        if value is OPAQUE or isinstance(value, (External, Bound)):
            raise NotPlainError
        return bool(number(value, bool)) if isinstance(value, Array) else bool(value)

    def statement(self, node: ast.stmt) -> None:
        self.work.budget.spend()
        kind = type(node)
        if kind is ast.Assign:
            value = self.value(node.value)  # type: ignore[attr-defined]
            for target in node.targets:  # type: ignore[attr-defined]
                self.bind(target, value)
        elif kind is ast.Return:
            raise ReturnedError(self.value(node.value) if node.value is not None else None)  # type: ignore[attr-defined]
        elif isinstance(node, ast.If):
            test = self.value(node.test)
            refuses = not node.orelse and isinstance(node.body[-1], ast.Raise)
            if refuses and (test is OPAQUE or self.work.lenient):
                return  # what only refuses is taken as passed
            if test is OPAQUE and self.work.lenient:
                ends = isinstance(node.body[-1], (ast.Raise, ast.Return, ast.Continue, ast.Break))
                self.body(node.orelse if ends else node.body)
                return
            self.body(node.body if self.truth(test) else node.orelse)
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Yield):
                if self.yielded is None or node.value.value is None:
                    raise NotPlainError
                self.yielded.append(self.value(node.value.value))
            elif not isinstance(node.value, ast.Constant):
                self.value(node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.bind(node.target, self.value(node.value))
        elif isinstance(node, ast.AugAssign):
            before = self.value(node.target)
            self.bind(node.target, self.binary(node.op, before, self.value(node.value), node))
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.With):
            for item in node.items:
                self.value(item.context_expr)
            self.body(node.body)
        elif isinstance(node, ast.Try):
            self.body([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.FunctionDef):
            self.names[node.name] = Inner(node, self.names)
        elif isinstance(node, ast.Raise):
            raise RefusedError
        elif isinstance(node, (ast.Continue, ast.Break)):
            raise BrokenError(isinstance(node, ast.Continue))
        elif not isinstance(node, (ast.Pass, ast.Assert, ast.Import, ast.ImportFrom)):
            raise NotPlainError

    def loop(self, node: ast.For) -> None:
        items = self.value(node.iter)
        for item in [OPAQUE] if items is OPAQUE and self.work.lenient else self.items_of(items):
            self.bind(node.target, item)
            try:
                self.body(node.body)
            except BrokenError as end:
                if not end.goes_on:
                    return
        self.body(node.orelse)

    def items_of(self, value: Any) -> list[Any]:
        if isinstance(value, Array):
            return list(value.rows())
        if isinstance(value, (list, tuple, dict, set, frozenset, str, zip, enumerate)) or hasattr(value, "__iter__"):
            return list(call(list, value))
        raise NotPlainError

    def bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            if value is OPAQUE:
                parts: list[Any] = [OPAQUE] * len(target.elts)
            else:
                parts = self.items_of(value)
            if len(target.elts) != len(parts) or any(isinstance(part, ast.Starred) for part in target.elts):
                raise NotPlainError
            for part, item in zip(target.elts, parts, strict=True):
                self.bind(part, item)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Stub):
                owner.attributes[target.attr] = value
            elif owner is not OPAQUE:
                raise NotPlainError
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            if isinstance(owner, (dict, list)) and not isinstance(target.slice, ast.Slice):
                owner[self.value(target.slice)] = value
            elif owner is not OPAQUE:
                raise NotPlainError
        else:
            raise NotPlainError

    @abstractmethod
    def value(self, node: ast.expr) -> Any:
        """Return what an expression is worth."""

    @abstractmethod
    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        """Return what an operator makes of two values."""
