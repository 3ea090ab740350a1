"""Statements that never run: under ``TYPE_CHECKING``, or under a test that is false as it is written."""

from __future__ import annotations

import ast

from scaffold.check.model.pyfile import PythonFile

_TYPES_ONLY = ("typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING")


def never_runs(file: PythonFile, node: ast.AST) -> bool:
    """Whether a statement stands in a branch that is not taken at run time."""
    inner = node
    for outer in file.index.ancestors(node):
        if isinstance(outer, ast.If):
            truth = _truth(file, outer.test)
            body = any(statement is inner for statement in outer.body)
            if truth is not None and truth is not body:
                return True
        inner = outer
    return False


def _truth(file: PythonFile, test: ast.expr) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(file, test.operand)
        return None if inner is None else not inner
    if file.qualified(test) in _TYPES_ONLY:
        return False
    return bool(test.value) if isinstance(test, ast.Constant) else None
