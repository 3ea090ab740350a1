"""Operators of a text that is worked out, on plain values and small arrays."""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from scaffold.bounded import compare, operate
from scaffold.check.model.array_methods import METHODS
from scaffold.check.model.arrays import Array, combined
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.worked_statements import Statements
from scaffold.check.model.worked_values import OPAQUE, External, Stub

_BINARY = frozenset(
    {ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor}
)


class Operators(Statements):
    """What operators and comparisons answer."""

    def unary(self, node: ast.UnaryOp) -> Any:
        inner = self.value(node.operand)
        if inner is OPAQUE:
            return OPAQUE
        if isinstance(node.op, ast.Not):
            return not self.truth(inner)
        if isinstance(node.op, ast.Invert) and isinstance(inner, Array):
            return inner.map(lambda value: not value)
        if isinstance(node.op, ast.USub):
            return inner.map(lambda value: -value) if isinstance(inner, Array) else -inner
        raise NotPlainError

    def operation(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Div) and isinstance(left, Array) and isinstance(right, Array):
            self.work.quotients.setdefault(node, self.function)
        return self.binary(node.op, left, right, node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        for side in (left, right):
            if hasattr(side, "combine"):
                return side.combine(op, left, right, node)
        if left is OPAQUE or right is OPAQUE or isinstance(left, (Stub, External)) or isinstance(right, Stub):
            return OPAQUE
        if isinstance(op, ast.MatMult):
            return METHODS["matmul"](left, right)
        kind = type(op)
        if kind not in _BINARY or (kind is ast.Mod and isinstance(left, str)):
            raise NotPlainError
        if isinstance(left, Array) or isinstance(right, Array):
            return combined(partial(operate, kind), left, right)
        return operate(kind, left, right)

    def compared(self, node: ast.Compare) -> Any:
        left, result = self.value(node.left), None
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            found = self.comparison(op, left, right)
            if found is OPAQUE:
                return OPAQUE
            if isinstance(found, Array) and len(node.ops) == 1:
                return found
            if not self.truth(found):
                return False
            left, result = right, True
        return result

    def comparison(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            if left is OPAQUE or right is OPAQUE:
                return OPAQUE
            same = left is right or ((left is None) == (right is None) and left is None)
            return same if isinstance(op, ast.Is) else not same
        if left is OPAQUE or right is OPAQUE or isinstance(left, External) or isinstance(right, External):
            return OPAQUE
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Stub):
            return OPAQUE
        if isinstance(left, Array) or isinstance(right, Array):
            if isinstance(op, (ast.In, ast.NotIn)) or left is None or right is None:
                raise NotPlainError
            return combined(partial(compare, type(op)), left, right)
        return compare(type(op), left, right)
