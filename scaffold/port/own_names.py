"""Names that statements read and assign, attributes of ``self`` among them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from scaffold.source.syntax import is_own, walk_tree


def name_of(node: ast.expr) -> str | None:
    """Return ``x`` or ``self.x``."""
    if isinstance(node, ast.Name):
        return node.id
    if is_own(node):
        return f"self.{node.attr}"
    return None


def names_read(node: ast.expr) -> set[str]:
    """Return the names and attributes of ``self`` that an expression reads."""
    found = {name for inner in walk_tree(node) if isinstance(inner, ast.expr) and (name := name_of(inner))}
    return found - {"self"}


def assigned_in(target: ast.expr) -> set[str]:
    return {name for inner in walk_tree(target) if isinstance(inner, ast.expr) and (name := name_of(inner))}


def assigned_by(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names and attributes of ``self`` that statements assign, in whatever block."""
    found: set[str] = set()
    for statement in statements:
        for node in walk_tree(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    found |= assigned_in(target)
            elif isinstance(node, ast.With):
                found |= {name for item in node.items for name in assigned_in(item.optional_vars or ast.Constant(0))}
    return found
