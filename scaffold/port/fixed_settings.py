"""Settings of the engine's that a package fixes: what a pipeline's constructor decides by them is decided."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from scaffold.limits.bounded import Budget
from scaffold.port.slicing import name_of
from scaffold.source.frame import Frame
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.plain import Plain
from scaffold.source.syntax import walk_tree
from scaffold.source.values import PlacedError, UndecidedError

TABLE = "additional_config"
_OWNERS = ("od_config", "self.od_config")
_STEPS = 20_000
_PLAIN = (bool, int, float, str)


def with_settings(
    graph: ModuleGraph, info: ModuleInfo, statements: Sequence[ast.stmt], settings: Mapping[str, Any]
) -> list[ast.stmt]:
    """Return a constructor's statements with the settings in place of the engine's table of them.

    Names that hold what follows from them are replaced by it, and of conditions on them only the side that is taken is
    left. A setting that is not among them is not in the table.

    Args:
        graph: modules of the source.
        info: the module whose names the statements see.
        statements: of the constructor, methods written out.
        settings: values by name.
    """
    return _Fixed(graph, info, settings, _stored(statements)).block(statements)


class _Fixed(ast.NodeTransformer):
    """Decides, statement by statement; ``known`` are the names whose values follow from what came before."""

    def __init__(
        self, graph: ModuleGraph, info: ModuleInfo, settings: Mapping[str, Any], local: Collection[str]
    ) -> None:
        self.graph, self.info = graph, info
        self.local = {"self", *_OWNERS, *local}
        self.table = ast.parse(repr(dict(settings)), mode="eval").body
        self.known: dict[str, ast.expr] = {}

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [found for statement in statements for found in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> Iterator[ast.stmt]:
        if isinstance(node, ast.If):
            test = self._expression(node.test)
            holds = self._value(test)
            if holds is not None:
                yield from self.block(node.body if holds.value else node.orelse)
                return
            self._forget([node])
            before = dict(self.known)
            body = self.block(node.body)
            self.known = dict(before)
            orelse = self.block(node.orelse)
            self.known = before
            yield ast.copy_location(ast.If(test, body or [ast.Pass()], orelse), node)
            return
        if isinstance(node, (ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)):
            self._forget([node])
            yield self.visit(copy.deepcopy(node))
            return
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        found = self.visit(copy.deepcopy(node))
        self._forget([node])
        name = name_of(target) if target is not None else None
        if name is not None and isinstance(found, (ast.Assign, ast.AnnAssign)) and found.value is not None:
            value = self._value(found.value) or (found.value if ast.dump(found.value) == ast.dump(self.table) else None)
            if value is not None:
                self.known[name] = value
        yield found

    def _forget(self, statements: Sequence[ast.stmt]) -> None:
        """Names that are assigned again may hold anything from here on."""
        for name in _stored(statements):
            self.known.pop(name, None)

    def _expression(self, node: ast.expr) -> ast.expr:
        found = self.visit(copy.deepcopy(node))
        assert isinstance(found, ast.expr)
        return ast.fix_missing_locations(found)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        holds = self._value(node.test)
        return node if holds is None else node.body if holds.value else node.orelse

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """``table or {}`` is the table, whatever is in it."""
        self.generic_visit(node)
        empty = isinstance(node.op, ast.Or) and len(node.values) == 2 and ast.unparse(node.values[1]) == "{}"
        return node.values[0] if empty and isinstance(node.values[0], ast.Dict) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``getattr(od_config, "additional_config", …)``."""
        if ast.unparse(node.func) == "getattr" and len(node.args) > 1 and ast.unparse(node.args[0]) in _OWNERS:
            if isinstance(node.args[1], ast.Constant) and node.args[1].value == TABLE:
                return copy.deepcopy(self.table)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == TABLE and ast.unparse(node.value) in _OWNERS:
            return copy.deepcopy(self.table)
        return self._given(node) or self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._given(node) or node

    def _given(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        name = name_of(node) if isinstance(node.ctx, ast.Load) else None
        return copy.deepcopy(self.known[name]) if name is not None and name in self.known else None

    def _value(self, node: ast.expr) -> ast.Constant | None:
        """What an expression is, where nothing but the settings and the module's own functions decides it."""
        if any(isinstance(inner, ast.Name) and inner.id in self.local for inner in walk_tree(node)):
            return None
        try:
            domain = Plain(self.graph, Budget(_STEPS, lambda: UndecidedError("it takes too many steps")))
            found = domain.run.evaluate(ast.fix_missing_locations(copy.deepcopy(node)), Frame(self.info))
        except (PlacedError, ArithmeticError):
            return None
        return ast.Constant(found) if isinstance(found, _PLAIN) else None


def _stored(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names and attributes of ``self`` that statements give a value, in whatever way."""
    nodes = (node for statement in statements for node in walk_tree(statement))
    return {
        name
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
        if (name := name_of(node)) is not None
    }
