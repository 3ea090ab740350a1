"""Comparisons of the noise level with the guidance interval, and what chooses by them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.dataflow import origin, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.modes import asks_mode
from scaffold.check.model.sides import Side

# What the ends of an interval are called.
ENDS = {
    "low": "low",
    "lo": "low",
    "lower": "low",
    "start": "low",
    "min": "low",
    "high": "high",
    "hi": "high",
    "upper": "high",
    "end": "high",
    "max": "high",
}


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


def tests_turned_round(method: FunctionModel, negative: str) -> Iterator[ast.expr]:
    """Yield tests under which the branch without the prompt only runs where the scale asks for no guidance.

    Args:
        method: the adapter's step.
        negative: its parameter that holds the inputs of that branch.
    """
    for node in method.file.index.nodes(ast.If, method.node):
        test = node.test
        if not (
            isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Eq))
        ):
            continue
        scaled = "scale" in ast.unparse(test.left) and method.file.value(test.comparators[0]) in (1, 1.0)
        runs = [
            item.value
            for statement in node.body
            for call in method.file.index.nodes(ast.Call, statement)
            for item in call.keywords
            if item.arg is None
        ]
        if scaled and any(isinstance(value, ast.Name) and value.id == negative for value in runs):
            yield test


def tests_of_mode(method: FunctionModel, negative: str) -> Iterator[ast.expr]:
    """Yield tests of the module's mode that decide whether the branch without the prompt runs."""
    module = method.positional[0] if method.positional else ""
    for node in method.file.index.nodes(ast.If, method.node):
        calls = [call for statement in node.body for call in method.file.index.nodes(ast.Call, statement)]
        runs = [item.value for call in calls for item in call.keywords if item.arg is None]
        if asks_mode(node.test, module) and any(isinstance(v, ast.Name) and v.id == negative for v in runs):
            yield node.test


def selected_wrongly(side: Side, function: FunctionModel, call: ast.Call, ends: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong where ``torch.where`` takes the velocity of the other branch inside of the interval."""
    gate = origin(side, function, call.args[0])
    compared = [
        n
        for around, _, n in gate.nodes
        if isinstance(n, ast.Compare) and around == function and any(True for _ in gate_comparisons(n, ends))
    ]
    turned = any(isinstance(n, ast.UnaryOp) and isinstance(n.op, (ast.Invert, ast.Not)) for _, _, n in gate.nodes)
    turned = turned or any(is_inverted(function, node) for node in compared)
    if not compared or turned:
        return
    inside, outside = call.args[1], call.args[2]
    if isinstance(inside, ast.Name) and isinstance(outside, ast.Name) and inside.id != outside.id:
        if is_made_of(function, outside, inside.id) and not is_made_of(function, inside, outside.id):
            yield f"{inside.id} is taken inside of the interval, {outside.id} outside"
