"""Sums in the forward code: what a value is the sum of, through names and operations that keep a tensor's values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.scopes import Binding
from scaffold.check.model.streams import self_call

_KEEPING = {
    *("to", "float", "double", "half", "bfloat16", "type_as", "type", "contiguous", "clone", "unsqueeze", "squeeze"),
    *("view", "reshape", "expand", "expand_as", "view_as", "flatten", "unflatten"),
}
_DEEPEST = 12


class Term(NamedTuple):
    """A part of a sum.

    Attributes:
        node: what is added, without conversions around it.
        sign: 1, or -1 where it is subtracted.
    """

    node: ast.expr
    sign: int = 1


def terms(function: FunctionModel, expr: ast.expr, loops: bool = False) -> list[Term]:
    """Return what an expression of a function is the sum of; a name with several origins is a term itself.

    Args:
        function: the function.
        expr: the expression.
        loops: leave out what a name is bound to inside of a loop that the use stands in, where something else reaches
            it from before the loop.
    """
    return list(_terms(function, expr, 1, loops, 0))


def _terms(function: FunctionModel, expr: ast.expr, sign: int, loops: bool, depth: int) -> Iterator[Term]:
    expr = kept(expr)
    if depth > _DEEPEST:
        yield Term(expr, sign)
    elif isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.Add, ast.Sub)):
        yield from _terms(function, expr.left, sign, loops, depth + 1)
        yield from _terms(function, expr.right, -sign if isinstance(expr.op, ast.Sub) else sign, loops, depth + 1)
    elif (added := _added(function, expr)) is not None:
        for part in added:
            yield from _terms(function, part, sign, loops, depth + 1)
    elif isinstance(expr, ast.Name):
        yield from _named(function, expr, sign, loops, depth)
    else:
        yield Term(expr, sign)


def kept(expr: ast.expr) -> ast.expr:
    """Return what is converted or given other dimensions: ``x`` of ``x.to(dtype)[:, None]``."""
    while True:
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in _KEEPING:
            if self_call(expr) is not None:
                return expr
            expr = expr.func.value
        elif isinstance(expr, ast.Subscript) and _only_new_dimensions(expr.slice):
            expr = expr.value
        else:
            return expr


def _only_new_dimensions(place: ast.expr) -> bool:
    """Whether a subscript adds dimensions and picks nothing: ``[:, None]``, ``[..., None]``."""
    parts = place.elts if isinstance(place, ast.Tuple) else [place]
    return all(
        (isinstance(part, ast.Constant) and part.value in (None, ...))
        or (isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None)
        for part in parts
    )


def _added(function: FunctionModel, expr: ast.expr) -> list[ast.expr] | None:
    """Return the parts of ``torch.add(x, y)`` and ``x.add(y)``."""
    if not isinstance(expr, ast.Call) or expr.keywords:
        return None
    if function.file.qualified(expr.func) == "torch.add" and len(expr.args) == 2:
        return list(expr.args)
    if isinstance(expr.func, ast.Attribute) and expr.func.attr in ("add", "add_") and len(expr.args) == 1:
        return [expr.func.value, expr.args[0]]
    return None


def _named(function: FunctionModel, name: ast.Name, sign: int, loops: bool, depth: int) -> Iterator[Term]:
    bindings = reaching(function, name)
    index = function.file.index
    around = [node for node in index.ancestors(name) if isinstance(node, (ast.For, ast.While))] if loops else []
    if around and len(bindings) > 1:
        before = [b for b in bindings if not any(index.contains(loop, b.node) for loop in around)]
        bindings = before or [
            b for b in bindings if index.contains(around[0], b.node) and not _behind(function, b, name)
        ]
    if len(bindings) == 1 and bindings[0].kind == "variable":
        if bindings[0].value is not None:
            yield from _terms(function, bindings[0].value, sign, loops, depth + 1)
            return
        statement = function.file.index.parent(bindings[0].node)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
            if isinstance(statement.target, ast.Name):
                yield from _named(function, statement.target, sign, loops, depth + 1)
            own = sign if isinstance(statement.op, ast.Add) else -sign
            yield from _terms(function, statement.value, own, loops, depth + 1)
            return
        pair = _paired(function, bindings[0].node)
        if pair is not None:
            yield from _terms(function, pair, sign, loops, depth + 1)
            return
    yield Term(name, sign)


def _behind(function: FunctionModel, binding: Binding, use: ast.Name) -> bool:
    """Whether a name is bound behind its use, or by the statement that uses it."""
    index = function.file.index
    statement = next((outer for outer in index.ancestors(binding.node) if isinstance(outer, ast.stmt)), binding.node)
    return index.contains(statement, use) or binding.node.lineno > use.lineno  # type: ignore[attr-defined]


def _paired(function: FunctionModel, target: ast.AST) -> ast.expr | None:
    """Return the i-th value of ``a, b = x, y`` for its i-th target."""
    parent = function.file.index.parent(target)
    statement = function.file.index.parent(parent) if isinstance(parent, (ast.Tuple, ast.List)) else None
    if not isinstance(parent, (ast.Tuple, ast.List)) or not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(parent.elts):
        return None
    if any(isinstance(part, ast.Starred) for part in (*value.elts, *parent.elts)):
        return None
    return next(part for item, part in zip(parent.elts, value.elts, strict=True) if item is target)
