"""Comparisons of the noise level with the guidance interval, and what chooses by them."""

from __future__ import annotations

import ast

from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel


def may_mix(function: FunctionModel, node: ast.BinOp) -> bool:
    """Whether a sum may combine two velocities: it stands alone, and something in it is scaled."""
    if not isinstance(node.op, (ast.Add, ast.Sub)) or isinstance(function.file.index.parent(node), ast.BinOp):
        return False
    index = function.file.index
    return any(isinstance(part.op, ast.Mult) for part in index.nodes(ast.BinOp, node)) and bool(
        index.nodes(ast.Name, node)
    )


def plain_scale(function: FunctionModel, node: ast.AST) -> bool:
    """Whether an expression is made of names, attributes, keys and numbers alone: no schedule of scales."""
    return not any(isinstance(part, ast.Call) for part in function.file.index.walk(node))


def gate_comparisons(node: ast.Compare, ends: dict[str, str]) -> list[tuple[str, ast.cmpop, ast.expr]]:
    """Return end, operator as ``sigma op end``, and the node, for every comparison with an end."""
    found: list[tuple[str, ast.cmpop, ast.expr]] = []
    turned: dict[type[ast.cmpop], ast.cmpop] = {
        ast.Lt: ast.Gt(),
        ast.LtE: ast.GtE(),
        ast.Gt: ast.Lt(),
        ast.GtE: ast.LtE(),
    }
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(right, ast.Name) and right.id in ends and type(op) in turned:
            found.append((ends[right.id], op, node))
        elif isinstance(left, ast.Name) and left.id in ends and type(op) in turned:
            found.append((ends[left.id], turned[type(op)], node))
        left = right
    return found


def is_inverted(function: FunctionModel, node: ast.AST) -> bool:
    """Whether what is compared is asked for being outside of the interval."""
    inner = node
    for outer in function.file.index.ancestors(node):
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.BitOr):
            return True
        if isinstance(outer, ast.BoolOp) and isinstance(outer.op, ast.Or):
            return True
        if isinstance(outer, ast.UnaryOp) and isinstance(outer.op, (ast.Not, ast.Invert)):
            return True
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)) and outer.test is inner:
            return True
        if isinstance(outer, ast.stmt):
            return False
        inner = outer
    return False


def is_made_of(function: FunctionModel, value: ast.Name, name: str) -> bool:
    """Whether a local value is computed from another one."""
    pending, seen = [value], set()
    while pending:
        for binding in reaching(function, pending.pop()):
            if binding.value is None or binding in seen:
                continue
            seen.add(binding)
            names = [n for n in function.file.index.walk(binding.value) if isinstance(n, ast.Name)]
            if any(n.id == name for n in names):
                return True
            pending += names
    return False
