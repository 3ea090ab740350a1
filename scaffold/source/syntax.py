"""Walks over syntax trees that visit no more nodes than needed."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

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


def is_own(node: ast.AST | None) -> TypeGuard[ast.Attribute]:
    """Whether this is ``self.name``."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_docstring(node: ast.AST | None) -> bool:
    """Whether this is a statement that is a constant alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def without_docstring(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return list(body[1:] if body and is_docstring(body[0]) else body)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return the keyword argument of a name."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def looked_up(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return the table and the key of ``table.get(key)`` and ``table[key]``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.value, node.slice
    return None


def lineage(classes: Mapping[str, ast.ClassDef], name: str) -> list[ast.ClassDef]:
    """Return a class and its ancestors in the same text, the nearest first."""
    found: list[ast.ClassDef] = []
    pending = [name]
    while pending:
        node = classes.get(pending.pop(0))
        if node is not None and node not in found:
            found.append(node)
            pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return found


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
