"""Operators of a text that is worked out, on plain values and small arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from scaffold.check.model.array_methods import METHODS
from scaffold.check.model.arrays import Array, combined
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.worked_statements import Statements
from scaffold.check.model.worked_values import OPAQUE, External, Stub
from scaffold.operators import COMPARISONS

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
}


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
        function = _BINARY.get(type(op))
        if function is None:
            raise NotPlainError
        if isinstance(left, Array) or isinstance(right, Array):
            return combined(function, left, right)
        if isinstance(op, (ast.Mult, ast.Pow)) and not all(isinstance(v, (int, float)) for v in (left, right)):
            if not isinstance(left, (list, tuple)) or not isinstance(right, int) or right > 64:
                raise NotPlainError
        if isinstance(op, ast.Mod) and isinstance(left, str):
            raise NotPlainError
        if isinstance(op, ast.Pow) and abs(right) > 64:
            raise NotPlainError
        return function(left, right)

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
            return combined(COMPARISONS[type(op)], left, right)
        return COMPARISONS[type(op)](left, right)
