"""Comparisons of a denoising step with the ends of the SDE window."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.window_records import (
    asked_elsewhere,
    grows_lists,
    window_ends,
)


def wrong_comparisons(function: FunctionModel) -> Iterator[tuple[ast.AST, str]]:
    """Yield comparisons of a step with the ends of the window that take a wrong step, with what is wrong."""
    ends = window_ends(function)
    index = function.file.index
    for node in index.nodes(ast.Compare, function.node) if len(ends) == 2 else ():
        parts = [node.left, *node.comparators]
        names = [ends.get(part.id) if isinstance(part, ast.Name) else None for part in parts]
        steps = [part for part, name in zip(parts, names, strict=True) if name is None]
        if len(steps) != 1 or isinstance(steps[0], ast.Constant) or not any(names):
            continue
        for at, op in enumerate(node.ops):
            left, right = names[at], names[at + 1]
            if (right == "end" and left is None and isinstance(op, ast.LtE)) or (
                left == "end" and isinstance(op, ast.GtE)
            ):
                if left is None or right is None:
                    yield node, "the step at the window's end is taken for one of its steps"
            if (left == "begin" and right is None and isinstance(op, ast.Lt)) or (
                right == "begin" and left is None and isinstance(op, ast.Gt)
            ):
                yield node, "the first step of the window is taken for one outside"
        statement = index.parent(node)
        turned = isinstance(statement, ast.UnaryOp) and isinstance(statement.op, ast.Not)
        statement = index.parent(statement) if turned and statement is not None else statement
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name):
            if set(names) - {None} != {"begin", "end"} and not asked_elsewhere(function, node, ends):
                yield node, f"only the window's {next(name for name in names if name)} decides here"
            if turned and grows_lists(function, target.id):
                yield node, "what is recorded are the steps outside of the window"
