"""Tables that a method stores on its object, read without executing it."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.source.classes import ClassInfo
from scaffold.source.values import UNKNOWN


def stored_tables(cls: ClassInfo, attribute: str) -> Any:
    """Return what the methods of a class store as ``self.<attribute>``; None where none does, unknown where the text
    does not give it."""
    for owner in cls.mro:
        for method in owner.methods.values():
            for node in ast.walk(method):
                if isinstance(node, ast.Assign) and any(_is_own(target, attribute) for target in node.targets):
                    return _literal(node.value, method)
    return None


def _is_own(target: ast.expr, attribute: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )


def _literal(value: ast.expr, method: ast.AST) -> Any:
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in ast.walk(method)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
        ]
        if len(given) != 1:
            return UNKNOWN
        value = given[0]
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN
