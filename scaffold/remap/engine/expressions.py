"""Expressions of the loading code, on plain values and tokens."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from scaffold.bounded import TooLargeError, joined, operate
from scaffold.remap.engine.execution import Execution, Frame
from scaffold.remap.engine.naming import SlotItems
from scaffold.remap.engine.tokens import UNKNOWN, Function, SlotShape, Unknown, Weight
from scaffold.remap.engine.undecided import LoadingError

_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_SIZES = (int, float, str, list, tuple, set, dict, bool)
_READS = (ast.Name, ast.Attribute)


class Keys(list[Any]):
    """The keys of a table, in order; a set to operators of sets."""


class Expressions(Execution):
    """Evaluation of expressions."""

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        self.step(node, frame)
        method = getattr(self, f"_eval_{type(node).__name__}", None)
        if method is None:
            return UNKNOWN
        try:
            return method(node, frame) if isinstance(node, _READS) else self.budget.hold(method(node, frame))
        except TooLargeError:
            return UNKNOWN

    def _eval_Constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def _eval_Name(self, node: ast.Name, frame: Frame) -> Any:
        if node.id in frame.env:
            return frame.env[node.id]
        if node.id in frame.closure:
            return frame.closure[node.id]
        return self.global_name(node.id, frame)

    def global_name(self, name: str, frame: Frame) -> Any:
        raise NotImplementedError

    def _eval_Attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.get_attr(self.evaluate(node.value, frame), node.attr)

    def _eval_Starred(self, node: ast.Starred, frame: Frame) -> Any:
        return self.evaluate(node.value, frame)

    def _items(self, nodes: list[ast.expr], frame: Frame) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            value = self.evaluate(node, frame)
            items.extend(self.iterate(value)) if isinstance(node, ast.Starred) else items.append(value)
        return items

    def _eval_Tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        return tuple(self._items(node.elts, frame))

    def _eval_List(self, node: ast.List, frame: Frame) -> Any:
        return self._items(node.elts, frame)

    def _eval_Set(self, node: ast.Set, frame: Frame) -> Any:
        return self.make_set(self._items(node.elts, frame))

    def _eval_Dict(self, node: ast.Dict, frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            found = self.evaluate(value, frame)
            if key is None:
                if not isinstance(found, dict):
                    return UNKNOWN
                made.update(found)
                continue
            name = self.evaluate(key, frame)
            if isinstance(name, Unknown):
                return UNKNOWN
            made[name] = found
        return made

    def _eval_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts: list[str | int] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                continue
            assert isinstance(part, ast.FormattedValue)
            value = self.evaluate(part.value, frame)
            if not isinstance(value, str | int) or part.format_spec is not None:
                return UNKNOWN
            parts.append(repr(value) if part.conversion == 114 else value)
        return joined(parts)

    def _eval_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Any:
        ends = isinstance(node.op, ast.Or)
        unknown = False
        value: Any = None
        for part in node.values:
            value = self.evaluate(part, frame)
            if isinstance(value, Unknown):
                unknown = True
            elif self.truth(value) == ends:
                return value
        return UNKNOWN if unknown else value

    def _eval_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.evaluate(node.operand, frame)
        if isinstance(value, Unknown):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not self.truth(value)
        if isinstance(value, int | float):
            return -value if isinstance(node.op, ast.USub) else value
        return UNKNOWN

    def _eval_BinOp(self, node: ast.BinOp, frame: Frame) -> Any:
        return self.arithmetic(type(node.op), self.evaluate(node.left, frame), self.evaluate(node.right, frame))

    def arithmetic(self, kind: type[ast.operator], left: Any, right: Any) -> Any:
        """Apply an operator; a weight stays one, anything that is not plain gives an unknown value."""
        if isinstance(left, Weight) or isinstance(right, Weight):
            return self.made_of([left, right], kind.__name__.lower())
        if kind in (ast.BitXor, ast.BitAnd, ast.BitOr, ast.Sub):
            left, right = (set(side) if isinstance(side, Keys) else side for side in (left, right))
        if not isinstance(left, _SIZES) or not isinstance(right, _SIZES):
            return UNKNOWN
        try:
            return operate(kind, left, right)
        except (TypeError, ValueError, ArithmeticError):
            return UNKNOWN

    def _eval_Compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.evaluate(node.left, frame)
        result: Any = True
        for kind, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, frame)
            result = self._compare(kind, left, right)
            if isinstance(result, Unknown) or not result:
                return result
            left = right
        return result

    def _compare(self, kind: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(kind, ast.Is | ast.IsNot):
            if isinstance(left, Unknown) or isinstance(right, Unknown):
                return UNKNOWN
            same = left is right or (isinstance(left, str | int | bool) and left == right)
            return same == isinstance(kind, ast.Is)
        if isinstance(kind, ast.Eq | ast.NotEq):
            same = self.equal(left, right)
            return same if isinstance(same, Unknown) else same == isinstance(kind, ast.Eq)
        if isinstance(kind, ast.In | ast.NotIn):
            if isinstance(left, Unknown) or not isinstance(right, str | list | tuple | dict | set | frozenset):
                return UNKNOWN
            if isinstance(right, str) and not isinstance(left, str):
                return UNKNOWN
            if isinstance(right, SlotItems):
                return UNKNOWN
            try:
                found = left in right
            except TypeError:
                return UNKNOWN
            return found == isinstance(kind, ast.In)
        if isinstance(left, SlotShape | Unknown) or isinstance(right, SlotShape | Unknown):
            return UNKNOWN
        try:
            return _ORDER[type(kind)](left, right)
        except TypeError:
            return UNKNOWN

    def _eval_IfExp(self, node: ast.IfExp, frame: Frame) -> Any:
        test = self.evaluate(node.test, frame)
        if isinstance(test, Unknown):
            return UNKNOWN
        return self.evaluate(node.body if self.truth(test) else node.orelse, frame)

    def _eval_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        frame.env[node.target.id] = value
        return value

    def _eval_Lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        return Function(node, frame.scope, {**frame.closure, **frame.env})

    def _eval_Yield(self, node: ast.Yield, frame: Frame) -> Any:
        frame.yields.append(self.evaluate(node.value, frame) if node.value is not None else None)
        return None

    def _eval_YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> Any:
        frame.yields.extend(self.iterate(self.evaluate(node.value, frame)))
        return None

    def _eval_Subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        base = self.evaluate(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                self.evaluate(part, frame) if part is not None else None
                for part in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            if isinstance(base, Weight):
                return base.part(ast.unparse(node.slice))
            if any(isinstance(bound, Unknown) for bound in bounds) or not isinstance(base, str | list | tuple):
                return UNKNOWN
            return base[slice(*bounds)]
        key = self.evaluate(node.slice, frame)
        return self.item(base, key, ast.unparse(node.slice))

    def item(self, base: Any, key: Any, text: str) -> Any:
        """Return an item.

        Raises:
            LoadingError: a table of names lacks the key.
        """
        if isinstance(base, Weight):
            return base.part(text)
        if isinstance(key, Unknown) or not isinstance(base, str | list | tuple | dict):
            return self.module_item(base, key)
        try:
            return base[key]
        except KeyError:
            raise LoadingError(f"{self.place()}: KeyError: {key!r}") from None
        except (IndexError, TypeError):
            return UNKNOWN

    def module_item(self, base: Any, key: Any) -> Any:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        raise NotImplementedError
