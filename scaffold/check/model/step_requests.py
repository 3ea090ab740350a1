"""Where a number of denoising steps is handed to the pipeline."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side
from scaffold.check.model.step_counts import NAME as STEPS
from scaffold.check.model.step_counts import Count, step_count


def handed_steps(side: Side) -> Iterator[tuple[FunctionModel, ast.AST, int]]:
    """Yield where a number of steps is put into a request, with what is added to it."""
    for function in side.functions:
        index = function.file.index
        for statement in index.nodes(ast.Assign, function.node):
            if any(isinstance(target, ast.Attribute) and target.attr == STEPS for target in statement.targets):
                count = _certain(function, step_count(side, function, statement.value), statement)
                if count is not None:
                    yield function, statement.value, count.offset
        for change in index.nodes(ast.AugAssign, function.node):
            number = function.file.value(change.value)
            if isinstance(change.target, ast.Attribute) and change.target.attr == STEPS and isinstance(number, int):
                if isinstance(change.op, (ast.Add, ast.Sub)) and not _versioned(function, change):
                    yield function, change, number if isinstance(change.op, ast.Add) else -number
        for call in function.calls:
            name = function.file.qualified(call.func) or ""
            if name in ("setattr", "dataclasses.replace", "copy.replace") or of_super(call):
                value = next((item.value for item in call.keywords if item.arg == STEPS), None)
                if name == "setattr" and len(call.args) == 3 and getattr(call.args[1], "value", None) == STEPS:
                    value = call.args[2]
                if value is not None:
                    count = _certain(function, step_count(side, function, value), call)
                    if count is not None:
                        yield function, value, count.offset


def _certain(function: FunctionModel, count: Count | None, statement: ast.AST) -> Count | None:
    return None if count is None or _versioned(function, statement) else count


def _versioned(function: FunctionModel, node: ast.AST) -> bool:
    """Whether a test for the release stands around a node."""
    around = [outer for outer in function.file.index.ancestors(node) if isinstance(outer, (ast.If, ast.IfExp))]
    return any("version" in ast.unparse(outer.test).lower() for outer in around)


def of_super(call: ast.Call) -> bool:
    target = call.func
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Call)
        and (isinstance(target.value.func, ast.Name) and target.value.func.id == "super")
    )
