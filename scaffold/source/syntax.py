"""Walks over syntax trees that look at no more than they must."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

# Fields that hold an operator, a context or no node at all.
_BARE = frozenset({"ctx", "op", "id", "attr", "arg", "kind", "module", "level", "asname", "type_comment",
                   "kwd_attrs"})  # fmt: skip
_WITHOUT_NODES = frozenset({ast.Constant, ast.Global, ast.Nonlocal})


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        names = () if kind in _WITHOUT_NODES else kind._fields
        self[kind] = found = tuple(name for name in names if name not in _BARE)
        return found


_FIELDS = _Fields()


def walk_tree(root: ast.AST) -> Iterator[ast.AST]:
    """Yield every node as ``ast.walk`` does, in its order, without operators and contexts such as ``Load``."""
    found = [root]
    for node in found:
        yield node
        for name in _FIELDS[type(node)]:
            child = getattr(node, name, None)
            if type(child) is list:
                found += child if None not in child else [c for c in child if c is not None]
            elif isinstance(child, ast.AST):
                found.append(child)


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
