"""A syntax tree in one pass: nodes in preorder, by type, with parents; subtrees are slices."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


class Index:
    """Nodes of a module for quick questions; built without recursion.

    Args:
        tree: the parsed module.
    """

    def __init__(self, tree: ast.Module) -> None:
        order: list[ast.AST] = []
        parents: list[int] = []
        ends: list[int] = []
        positions: dict[ast.AST, int] = {}
        typed: defaultdict[type[ast.AST], list[int]] = defaultdict(list)
        stack: list[tuple[ast.AST, int]] = [(tree, -1)]
        pop, push, known, syntax = stack.pop, stack.append, _FIELDS, ast.AST
        here, last = 0, -1
        while stack:
            node, parent = pop()
            while last != parent:
                ends[last], last = here, parents[last]
            kind = node.__class__
            positions[node] = last = here
            order.append(node)
            parents.append(parent)
            ends.append(0)
            typed[kind].append(here)
            for name in known[kind] if kind in known else _fields(kind):
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for child in reversed(value):
                        if isinstance(child, syntax):
                            push((child, here))
                elif isinstance(value, syntax):
                    push((value, here))
            here += 1
        while last >= 0:
            ends[last], last = here, parents[last]
        self._order, self._parents, self._positions, self._ends = order, parents, positions, ends
        self._typed = typed

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that holds ``node``."""
        at = self._parents[self._positions[node]]
        return None if at < 0 else self._order[at]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around ``node``, innermost first."""
        at = self._parents[self._positions[node]]
        while at >= 0:
            yield self._order[at]
            at = self._parents[at]

    def contains(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Whether ``inner`` is ``outer`` or lies in it."""
        at = self._positions.get(inner)
        start = self._positions.get(outer)
        return at is not None and start is not None and start <= at < self._ends[start]

    def walk(self, node: ast.AST) -> list[ast.AST]:
        """Return ``node`` and all nodes in it, in preorder."""
        start = self._positions[node]
        return self._order[start : self._ends[start]]

    def own(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes in ``node`` that do not belong to a function, lambda or class inside it."""
        start = self._positions[node]
        at, end = start + 1, self._ends[start]
        while at < end:
            inner = self._order[at]
            yield inner
            at = self._ends[at] if inner.__class__ in _NESTED else at + 1

    def nodes(self, kind: type[Node], within: ast.AST | None = None) -> list[Node]:
        """Return the nodes of exactly that type, in preorder; with ``within``, only those in it."""
        places = self._typed.get(kind, [])
        if within is not None:
            start = self._positions[within]
            places = places[bisect_left(places, start) : bisect_left(places, self._ends[start])]
        return [self._order[at] for at in places]  # type: ignore[misc]


_NESTED = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
# Contexts and operators are objects that all nodes share; they have no place in the text.
_SHARED = frozenset(("ctx", "op", "ops", "lineno", "col_offset", "end_lineno", "end_col_offset"))
# Text and numbers in every release of Python; the value of a constant is one too.
_PLAIN = frozenset(
    ("arg", "asname", "attr", "conversion", "id", "is_async", "level", "module", "simple", "type_comment")
)


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields that may hold nodes, last first."""
    names = () if kind is ast.Constant else reversed(kind._fields)
    found = _FIELDS[kind] = tuple(name for name in names if name not in _SHARED and name not in _PLAIN)
    return found
