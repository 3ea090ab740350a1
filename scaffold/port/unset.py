"""Switches of constructors that nothing sets: what they would add is no part of a denoiser."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from scaffold.source.syntax import walk_tree


def without_unset(tree: ast.Module) -> ast.Module:
    """Leave out of the constructors of a tree what arguments decide that no call gives; changes the tree.

    A class that is made nowhere in the tree, is made with unpacked arguments, or has classes below it stays as it is.
    """
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    calls: dict[str, list[ast.Call]] = {}
    for node in walk_tree(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
            calls.setdefault(node.func.id, []).append(node)
    above = {base.id for node in classes.values() for base in node.bases if isinstance(base, ast.Name)}
    for name, made in calls.items():
        init = next((n for n in classes[name].body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None and name not in above:
            known = dict(_unset(init, made))
            init.body = [line for part in init.body for line in _Decided(known).block(part)] or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _unset(init: ast.FunctionDef, calls: list[ast.Call]) -> Iterator[tuple[str, Any]]:
    """Yield arguments that no call gives and nothing assigns, with their plain defaults."""
    if any(isinstance(given, ast.Starred) for call in calls for given in call.args):
        return
    named = {keyword.arg for call in calls for keyword in call.keywords}
    if None in named:
        return
    most = max(len(call.args) for call in calls)
    positional = [argument.arg for argument in init.args.args][1:]
    defaults = dict(zip(reversed(positional), reversed(init.args.defaults), strict=False))
    pairs = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    defaults |= {argument.arg: default for argument, default in pairs if default is not None}
    stored = {node.id for node in walk_tree(init) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for name, default in defaults.items():
        if isinstance(default, ast.Constant) and (default.value is None or default.value is False):
            if name not in named | stored and name not in positional[:most]:
                yield name, default.value


class _Decided(ast.NodeTransformer):
    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known

    def block(self, node: ast.stmt) -> list[ast.stmt]:
        """What is left of a statement."""
        made = self.visit(node)
        return made if isinstance(made, list) else [made]

    def visit_If(self, node: ast.If) -> Any:
        value = self._value(node.test)
        if value is None:
            return self.generic_visit(node)
        return [line for part in (node.body if value else node.orelse) for line in self.block(part)] or [ast.Pass()]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        value = self._value(node.test)
        return self.generic_visit(node) if value is None else self.visit(node.body if value else node.orelse)

    def _value(self, test: ast.expr) -> bool | None:
        """Whether ``x``, ``not x``, ``x is None`` or ``x is not None`` holds; None where that is open."""
        if isinstance(test, ast.Name) and test.id in self.known:
            return bool(self.known[test.id])
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._value(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id in self.known:
            other = test.comparators[0]
            if isinstance(other, ast.Constant) and other.value is None and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                return (self.known[test.left.id] is None) is isinstance(test.ops[0], ast.Is)
        return None


# Tables of stacked parameters: which parts the checkpoint has for a fused layer, and in which order.

Row = tuple[str, str, str | int]
_ORDER: dict[str | int, int] = {"q": 0, "k": 1, "v": 2}


def rows_of(tree: ast.AST) -> list[Row]:
    """Return every literal ``(parameter, part, shard)`` of a module."""
    found: list[Row] = []
    for node in walk_tree(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == 3:
            values = [entry.value for entry in node.elts if isinstance(entry, ast.Constant)]
            if len(values) == 3 and isinstance(values[0], str) and isinstance(values[1], str):
                if isinstance(values[2], int) or values[2] in _ORDER:
                    found.append((values[0], values[1], values[2]))  # type: ignore[arg-type]
    return found


def parts_of(rows: list[Row], name: str) -> tuple[str, ...] | None:
    """Return the parts of the fused layer ``name``.

    None where no table has them, where tables give it other parts at other places, or where the parts are not beside
    each other: the checkpoint's names are then a matter of the key map.
    """
    places: dict[str, dict[int, str]] = defaultdict(dict)
    for parameter, part, shard in rows:
        place, _, last = parameter.strip(".").rpartition(".")
        beside, _, own = part.strip(".").rpartition(".")
        if last != name:
            continue
        if place != beside or not own.isidentifier():
            return None
        places[place][_ORDER[shard] if isinstance(shard, str) else shard] = own
    found = {tuple(parts[index] for index in sorted(parts)) for parts in places.values()}
    if len(found) != 1:
        return None
    parts = found.pop()
    return parts if len(set(parts)) == len(parts) > 1 else None
