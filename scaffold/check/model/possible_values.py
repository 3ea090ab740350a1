"""What an expression may be: every arm of a conditional, every binding of a name that reaches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel


def possible_values(function: FunctionModel, expr: ast.expr, depth: int = 0) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what an expression of a function may stand for.

    ``a if test else b`` and ``a or b`` are their parts; a local name is what the assignments that reach it give it.

    Yields:
        where it is written, and what stands there with names followed; a name that is not plain stands for itself.
    """
    if depth > 8:
        yield expr, expr
    elif isinstance(expr, ast.IfExp):
        yield from possible_values(function, expr.body, depth + 1)
        yield from possible_values(function, expr.orelse, depth + 1)
    elif isinstance(expr, ast.BoolOp) and isinstance(expr.op, ast.Or):
        for value in expr.values:
            yield from possible_values(function, value, depth + 1)
    elif isinstance(expr, ast.Name):
        values = [b.value if b.kind == "variable" else None for b in reaching(function, expr)]
        found = [arm for value in values if value is not None for arm in possible_values(function, value, depth + 1)]
        if not values or None in values:
            yield expr, expr
        elif len(found) == 1:
            yield expr, found[0][1]
        else:
            yield from found
    else:
        yield expr, expr
