"""Classifier-free guidance as a linear combination of the two branches."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.model.dataflow import arguments, bound_value, reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

METHOD = "forward_and_sample_previous_step"
POSITIVE, NEGATIVE = 3, 4  # places of the two dictionaries among the method's parameters
# Any scale above one: only signs are looked at.
SCALE = 3.0
_PASSING = {"float", "to", "clone", "detach", "contiguous", "double", "type", "view", "reshape", "squeeze", "unsqueeze"}
_DEEPEST = 20


class Mix(NamedTuple):
    """``positive * with_prompt + negative * without``.

    Attributes:
        function, node: where the branches are combined; None where one of them stands alone.
    """

    positive: float
    negative: float
    function: FunctionModel | None = None
    node: ast.AST | None = None

    @property
    def both(self) -> bool:
        """Whether both branches are in it."""
        return abs(self.positive) > 1e-9 and abs(self.negative) > 1e-9


class Formula:
    """Works out what a value of a training side is made of.

    Args:
        side: the side.
        method: the adapter's ``forward_and_sample_previous_step``.
    """

    def __init__(self, side: Side, method: FunctionModel) -> None:
        self.side, self.method = side, method
        places = method.positional
        self.positive = places[POSITIVE] if len(places) > NEGATIVE else "model_inputs"
        self.negative = places[NEGATIVE] if len(places) > NEGATIVE else "negative_model_inputs"
        self._known: dict[tuple[FunctionModel, ast.expr], Mix | None] = {}
        self._given_up = 0

    def mix(self, function: FunctionModel, expr: ast.expr, depth: int = 0) -> Mix | None:
        """Return what a value is made of; None for scalars and what is not plain."""
        if (function, expr) in self._known:
            return self._known[function, expr]
        before = self._given_up
        found = self._mix(function, expr, depth)
        if self._given_up == before:  # else what was found depends on how deep the search began
            self._known[function, expr] = found
        return found

    def _mix(self, function: FunctionModel, expr: ast.expr, depth: int) -> Mix | None:
        if depth > _DEEPEST:
            self._given_up += 1
            return None
        if isinstance(expr, ast.Call):
            return self._call(function, expr, depth + 1)
        if isinstance(expr, ast.Subscript):
            return self.mix(function, expr.value, depth + 1)
        if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
            inner = self.mix(function, expr.operand, depth + 1)
            return None if inner is None else Mix(-inner.positive, -inner.negative, inner.function, inner.node)
        if isinstance(expr, ast.BinOp):
            return self._combined(function, expr, depth + 1)
        if isinstance(expr, ast.IfExp):
            return _one([self.mix(function, part, depth + 1) for part in (expr.body, expr.orelse)])
        if isinstance(expr, ast.Name):
            return self._name(function, expr, depth + 1)
        return None

    def _branch(self, function: FunctionModel, call: ast.Call) -> Mix | None:
        """Return which branch a call computes: it is given one of the two dictionaries."""
        values = [*call.args, *(item.value for item in call.keywords)]
        given = {which for value in values for which in (self._dictionary(function, value, 0),) if which is not None}
        if len(given) != 1:
            return None
        return Mix(1.0, 0.0) if given.pop() == "positive" else Mix(0.0, 1.0)

    def _dictionary(self, function: FunctionModel, value: ast.expr, depth: int) -> str | None:
        if not isinstance(value, ast.Name) or depth > 6:
            return None
        found: set[str | None] = set()
        for binding in reaching(function, value):
            if binding.kind == "parameter" and function == self.method:
                found.add({self.positive: "positive", self.negative: "negative"}.get(value.id))
            elif binding.kind == "parameter":
                found |= {self._dictionary(f, v, depth + 1) for f, v in arguments(self.side, function, value.id)}
            elif binding.value is not None:
                found.add(self._dictionary(function, binding.value, depth + 1))
        return found.pop() if len(found) == 1 else None

    def _name(self, function: FunctionModel, expr: ast.Name, depth: int) -> Mix | None:
        found: list[Mix | None] = []
        for binding in reaching(function, expr):
            if binding.kind == "parameter":
                calls = list(arguments(self.side, function, expr.id))
                found += [self.mix(caller, value, depth + 1) for caller, value in calls]
            elif binding.kind == "variable":
                place = unpacked_at(function.file, binding.node)
                value = binding.value or (place[0] if place else bound_value(function.file, binding.node))
                found.append(self.mix(function, value, depth + 1) if value is not None else None)
        return _one(found)

    def _combined(self, function: FunctionModel, expr: ast.BinOp, depth: int) -> Mix | None:
        left, right = self.mix(function, expr.left, depth), self.mix(function, expr.right, depth)
        if left is None and right is None:
            return None
        if isinstance(expr.op, (ast.Add, ast.Sub)):
            sign = 1.0 if isinstance(expr.op, ast.Add) else -1.0
            if left is None or right is None:
                only = left if left is not None else right
                return only if left is not None or sign > 0 else None
            return Mix(left.positive + sign * right.positive, left.negative + sign * right.negative, function, expr)
        if isinstance(expr.op, (ast.Mult, ast.Div)):
            vector, scalar = (left, expr.right) if left is not None else (right, expr.left)
            if vector is None or (left is not None and right is not None):
                return None
            factor = self._scalar(function, scalar)
            factor = 1.0 / factor if isinstance(expr.op, ast.Div) and factor else factor
            return Mix(vector.positive * factor, vector.negative * factor, vector.function, vector.node)
        return None

    def _scalar(self, function: FunctionModel, expr: ast.expr) -> float:
        value = function.file.value(expr)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if isinstance(expr, ast.BinOp):
            left, right = self._scalar(function, expr.left), self._scalar(function, expr.right)
            if isinstance(expr.op, ast.Add):
                return left + right
            if isinstance(expr.op, ast.Sub):
                return left - right
        if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
            return -self._scalar(function, expr.operand)
        return SCALE

    def _call(self, function: FunctionModel, call: ast.Call, depth: int) -> Mix | None:
        target, name = call.func, function.file.qualified(call.func) or ""
        if name == "torch.where" and len(call.args) == 3:
            return _one([self.mix(function, value, depth) for value in call.args[1:]])
        if name in ("torch.lerp", "torch.add", "torch.sub") and len(call.args) >= 2:
            return self._torch(function, call, name, depth)
        branch = self._branch(function, call)
        if branch is not None:
            return branch
        called = self.side.called(function, call)
        if called is not None:
            values = [item.value for item in called.returns if item.value is not None]
            return _one([self.mix(called, value, depth) for value in values])
        if isinstance(target, ast.Attribute) and target.attr in _PASSING:
            return self.mix(function, target.value, depth)
        if isinstance(target, ast.Attribute) and target.attr == "lerp" and len(call.args) == 2:
            return self._lerp(function, call, target.value, call.args[0], depth)
        return None

    def _torch(self, function: FunctionModel, call: ast.Call, name: str, depth: int) -> Mix | None:
        if name == "torch.lerp":
            return self._lerp(function, call, call.args[0], call.args[1], depth)
        op: ast.operator = ast.Add() if name == "torch.add" else ast.Sub()
        left, right = (self.mix(function, value, depth) for value in call.args[:2])
        if left is None or right is None:
            return None
        sign = 1.0 if isinstance(op, ast.Add) else -1.0
        alpha = next((self._scalar(function, item.value) for item in call.keywords if item.arg == "alpha"), 1.0)
        sign *= alpha
        return Mix(left.positive + sign * right.positive, left.negative + sign * right.negative, function, call)

    def _lerp(self, function: FunctionModel, call: ast.Call, start: ast.expr, end: ast.expr, depth: int) -> Mix | None:
        first, second = self.mix(function, start, depth), self.mix(function, end, depth)
        if first is None or second is None:
            return None
        positive = first.positive + SCALE * (second.positive - first.positive)
        return Mix(positive, first.negative + SCALE * (second.negative - first.negative), function, call)


def _one(found: list[Mix | None]) -> Mix | None:
    """Return what several possibilities agree on: the combination, where some of them are none yet."""
    plain = [mix for mix in found if mix is not None]
    both = [mix for mix in plain if mix.both]
    if both:
        return both[0] if len({(mix.positive > 0, mix.negative > 0) for mix in both}) == 1 else None
    signs = {(mix.positive > 0, mix.negative > 0) for mix in plain}
    return plain[0] if len(signs) == 1 and len(plain) == len(found) else None
