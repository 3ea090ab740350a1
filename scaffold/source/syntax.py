"""Walks over syntax trees that look at no more than they must."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator


def walk_tree(root: ast.AST) -> Iterator[ast.AST]:
    """Yield every node as ``ast.walk`` does, in its order, without operators and contexts such as ``Load``."""
    todo = deque([root])
    while todo:
        node = todo.popleft()
        yield node
        for name in node._fields:
            child = getattr(node, name, None)
            if type(child) is list:
                todo.extend(c for c in child if isinstance(c, ast.AST))
            elif isinstance(child, ast.AST) and child._fields:
                todo.append(child)


def around(root: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the nodes whose lines include ``line``, the outer ones first."""
    todo = deque([root])
    while todo:
        node = todo.popleft()
        first = getattr(node, "lineno", None)
        if first is not None and not first <= line <= (getattr(node, "end_lineno", None) or first):
            continue
        yield node
        todo.extend(ast.iter_child_nodes(node))
