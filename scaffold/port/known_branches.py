"""Branches of a method that arguments of one value, and options that nobody sets, decide: the others are left out."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from scaffold.port.slicing import CONFIG
from scaffold.source.syntax import walk_tree

_OPEN = object()
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def decided(
    node: ast.FunctionDef, constants: Mapping[str, object], returned: Callable[[str], ast.expr | None]
) -> dict[str, object]:
    """Leave out of a function what its constants decide; returns those that decided something.

    Args:
        node: changed in place.
        constants: arguments of one plain value.
        returned: what a method of ``self`` returns, where that is one expression.
    """
    stored = Counter(n.id for n in walk_tree(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    rewriter = _Branches({name: value for name, value in constants.items() if not stored[name]}, returned)
    while rewriter.changes(node):
        pass
    filled = _Nothing({name for name, value in constants.items() if value is None and not stored[name]})
    node.body = [filled.visit(line) for line in node.body]
    rewriter.used |= filled.used
    return {name: constants[name] for name in constants if name in rewriter.used}


class _Nothing(ast.NodeTransformer):
    """Hands on ``None`` where an argument is handed on that never has a value."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.used = names, set[str]()

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if isinstance(node.value, ast.Name) and node.value.id in self.names:
            self.used.add(node.value.id)
            return ast.copy_location(ast.keyword(node.arg, ast.copy_location(ast.Constant(None), node.value)), node)
        self.generic_visit(node)
        return node


class _Branches(ast.NodeTransformer):
    def __init__(self, known: dict[str, object], returned: Callable[[str], ast.expr | None]) -> None:
        self.known, self.returned = known, returned
        self.used: set[str] = set()
        self.changed = False

    def changes(self, node: ast.FunctionDef) -> bool:
        """Leave out what is decided now; tells whether there was anything."""
        self.changed = False
        node.body = self._block(node.body)
        parameters = {arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        assigned: dict[str, list[ast.expr | None]] = {}
        for inner in walk_tree(node):
            if isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name):
                assigned.setdefault(inner.targets[0].id, []).append(inner.value)
        stored = Counter(n.id for n in walk_tree(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for name, values in assigned.items():
            value = self._value(values[0]) if len(values) == stored[name] == 1 and values[0] is not None else _OPEN
            plain = value is None or isinstance(value, (bool, int, float, str))
            if plain and name not in parameters and name not in self.known:
                self.known[name], self.changed = value, True
        return self.changed

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in body:
            if not isinstance(node, ast.If):
                for name in ("body", "orelse", "finalbody"):
                    inner = getattr(node, name, None)
                    if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                        setattr(node, name, self._block(inner) or [ast.copy_location(ast.Pass(), node)])
                found.append(node)
                continue
            before = set(self.used)
            holds = self._truth(node.test)
            if holds is None:
                self.used = before
                node.body = self._block(node.body) or [ast.copy_location(ast.Pass(), node)]
                node.orelse = self._block(node.orelse)
                found.append(node)
                continue
            self.changed = True
            found += self._block(node.body if holds else node.orelse)
        return found

    def _truth(self, node: ast.expr) -> bool | None:
        value = self._value(node)
        return None if value is _OPEN else bool(value)

    def _value(self, node: ast.expr) -> Any:
        """The plain value of an expression, ``_OPEN`` where it has none; a member of a class is its text."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.known:
            self.used.add(node.id)
            return self.known[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id[:1].isupper():
            return ast.unparse(node)
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            sides = [self._truth(part) for part in node.values]
            return ends if ends in sides else _OPEN if None in sides else not ends
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._truth(node.operand)
            return _OPEN if inner is None else not inner
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._value(node.left), self._value(node.comparators[0])
            compare = _COMPARE.get(type(node.ops[0]))
            return _OPEN if compare is None or left is _OPEN or right is _OPEN else compare(left, right)
        if isinstance(node, ast.Call):
            return self._called(node)
        return _OPEN

    def _called(self, node: ast.Call) -> Any:
        """What nobody sets is as it is by default: training has no options of the engine's."""
        func = ast.unparse(node.func)
        if func == "getattr" and len(node.args) == 3 and ast.unparse(node.args[0]) == f"self.{CONFIG}":
            return self._value(node.args[2])
        if func.startswith("self.") and not node.args and not node.keywords:
            returned = self.returned(func.removeprefix("self."))
            return _OPEN if returned is None else self._value(returned)
        return _OPEN
