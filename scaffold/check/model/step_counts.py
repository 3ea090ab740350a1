"""How many denoising steps code asks for, as ``num_inference_steps`` plus or minus something."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.model.dataflow import arguments, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

NAME = "num_inference_steps"
_DEEPEST = 12


class Count(NamedTuple):
    """``num_inference_steps + offset``.

    Attributes:
        offset: what is added.
        function, node: where something is added; None where nothing is.
    """

    offset: int
    function: FunctionModel | None = None
    node: ast.expr | None = None


def step_count(side: Side, function: FunctionModel, expr: ast.expr, depth: int = 0) -> Count | None:
    """Return what an expression is in terms of the requested number of steps; None where that is not plain."""
    if depth > _DEEPEST:
        return None
    if isinstance(expr, ast.Attribute):
        return Count(0) if expr.attr == NAME else None
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        return Count(0) if expr.slice.value == NAME else None
    if isinstance(expr, ast.Name):
        return _of_name(side, function, expr, depth)
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.Add, ast.Sub)):
        return _of_sum(side, function, expr, depth)
    if isinstance(expr, ast.BoolOp) and isinstance(expr.op, ast.Or):
        return step_count(side, function, expr.values[0], depth + 1)
    if isinstance(expr, ast.IfExp):
        return _of_choice(side, function, expr, depth)
    if isinstance(expr, ast.Call):
        return _of_call(side, function, expr, depth)
    return None


def _of_choice(side: Side, function: FunctionModel, expr: ast.IfExp, depth: int) -> Count | None:
    """Return the arm that many steps take, where the number itself is compared with a small one."""
    test = expr.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    limit = function.file.value(test.comparators[0])
    if not isinstance(limit, int) or step_count(side, function, test.left, depth + 1) is None:
        return None
    above = isinstance(test.ops[0], (ast.Gt, ast.GtE, ast.NotEq))
    return step_count(side, function, expr.body if above else expr.orelse, depth + 1)


def _of_name(side: Side, function: FunctionModel, expr: ast.Name, depth: int) -> Count | None:
    found: set[Count | None] = set()
    for binding in reaching(function, expr):
        if binding.kind == "parameter":
            given = list(arguments(side, function, expr.id))
            found |= {step_count(side, caller, value, depth + 1) for caller, value in given}
            if not given:
                found.add(Count(0) if expr.id == NAME else None)
        elif binding.kind == "variable" and binding.value is not None:
            found.add(step_count(side, function, binding.value, depth + 1))
        else:
            found.add(None)
    return found.pop() if len(found) == 1 else None


def _of_sum(side: Side, function: FunctionModel, expr: ast.BinOp, depth: int) -> Count | None:
    left, right = expr.left, expr.right
    number = function.file.value(right)
    if not isinstance(number, int) and isinstance(expr.op, ast.Add):
        left, number = right, function.file.value(left)
    base = step_count(side, function, left, depth + 1)
    if base is None or not isinstance(number, int) or isinstance(number, bool):
        return None
    offset = base.offset + (number if isinstance(expr.op, ast.Add) else -number)
    return Count(offset, function, expr)


def _of_call(side: Side, function: FunctionModel, call: ast.Call, depth: int) -> Count | None:
    name = function.file.qualified(call.func)
    if name in ("int", "max", "min", "round", "abs"):
        counts = {step_count(side, function, value, depth + 1) for value in call.args} - {None}
        return counts.pop() if len(counts) == 1 else None
    if isinstance(call.func, ast.Attribute) and call.func.attr == "get" and call.args:
        return Count(0) if getattr(call.args[0], "value", None) == NAME else None
    if name == "getattr" and len(call.args) > 1:
        return Count(0) if getattr(call.args[1], "value", None) == NAME else None
    called = side.called(function, call)
    if called is not None and len(called.returns) == 1 and called.returns[0].value is not None:
        return step_count(side, called, called.returns[0].value, depth + 1)
    return None
