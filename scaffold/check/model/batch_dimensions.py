"""How many dimensions are put in front of a tensor, or taken off there."""

from __future__ import annotations

import ast

from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel

KEEPING = frozenset({"float", "to", "clone", "detach", "contiguous", "double", "type", "cpu", "half", "bfloat16"})


def in_front(function: FunctionModel, value: ast.expr, base: ast.AST | None = None, depth: int = 0) -> int | None:
    """Return how many dimensions an expression has in front of those of what it is made of; None where not plain.

    Args:
        function: where it stands.
        value: the expression: ``x[None]`` has one, ``x[0]`` has minus one.
        base: the target where counting begins; by default, and otherwise, the parameters of the function.
    """
    if depth > 12:
        return None
    if isinstance(value, ast.Name):
        found: set[int | None] = set()
        for binding in reaching(function, value):
            if binding.node is base or (binding.kind == "parameter" and base is None):
                found.add(0)
            else:
                given = binding.value
                found.add(in_front(function, given, base, depth + 1) if given is not None else None)
        return found.pop() if len(found) == 1 else None
    if isinstance(value, ast.Subscript):
        inner, change = value.value, _indexed(value.slice)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        inner, change = value.func.value, _called(function, value)
    else:
        return None
    count = in_front(function, inner, base, depth + 1) if change is not None else None
    return None if count is None or change is None else count + change


def _indexed(index: ast.expr) -> int | None:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    change = 0
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is None:
            change += 1
        elif isinstance(part, ast.Constant) and isinstance(part.value, int):
            change -= 1
        elif isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value is ...):
            break  # what follows is behind the first dimension
        else:
            return None
    return change


def _called(function: FunctionModel, call: ast.Call) -> int | None:
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    if name in KEEPING:
        return 0
    if name not in ("unsqueeze", "squeeze"):
        return None
    at = call.args[0] if call.args else next((item.value for item in call.keywords if item.arg == "dim"), None)
    place = function.file.value(at) if at is not None else None
    if not isinstance(place, int):
        return None
    change = 1 if name == "unsqueeze" else -1
    return change if place == 0 else 0 if place > 0 else None
