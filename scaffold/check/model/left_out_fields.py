"""Fields of a configuration that a filter leaves out of what is saved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.name_functions import NotPlainError, Opaque, RefusedNameError, Run, effort
from scaffold.check.model.saved_config import is_fields


class _Field:
    """One entry of ``dataclasses.fields``."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Filter(Run):
    def expression(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute) and node.attr == "name" and isinstance(node.value, ast.Name):
            field = self.names.get(node.value.id)
            if isinstance(field, _Field):
                return field.name
        return super().expression(node)

    def compared(self, node: ast.Compare) -> bool:
        names = [part.id for part in (node.left, *node.comparators) if isinstance(part, ast.Name)]
        if any(isinstance(self.names.get(name), Opaque) for name in names):
            if not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
                raise NotPlainError
        return super().compared(node)


def left_out_fields(config: ClassModel, save: FunctionModel) -> Iterator[tuple[ast.expr, list[str]]]:
    """Yield a test that chooses fields by their names, with the fields that it leaves out.

    Tests that ask for something else than the name are passed over, and so are fields that the function names itself.
    """
    for part in save.file.index.nodes(ast.comprehension, save.node):
        for test in part.ifs:
            yield from _without(config, save, part.target, part.iter, test, left_out=False)
    for loop in save.file.index.nodes(ast.For, save.node):
        for statement in loop.body:
            if isinstance(statement, ast.If) and not statement.orelse:
                left_out = _leaves_out(statement.body)
                if left_out is not None:
                    yield from _without(config, save, loop.target, loop.iter, statement.test, left_out)


def _leaves_out(body: list[ast.stmt]) -> bool | None:
    """Whether a branch leaves a field out (True) or writes it (False)."""
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        popped = isinstance(call, ast.Call) and attribute_name(call) == "pop"
        if isinstance(statement, (ast.Continue, ast.Delete)) or popped:
            return True
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            return False
    return None


def _without(
    config: ClassModel, save: FunctionModel, target: ast.expr, source: ast.expr, test: ast.expr, left_out: bool
) -> Iterator[tuple[ast.expr, list[str]]]:
    items = _items(save, source)
    if items is None:
        return
    inside = set(save.file.index.walk(test))
    named = {n.value for n in save.file.index.nodes(ast.Constant, save.node) if n not in inside}
    named |= {n.attr for n in save.file.index.nodes(ast.Attribute, save.node) if n not in inside}
    without = []
    for name in config.fields:
        run = _Filter(save, {}, 0, effort())
        try:
            run.bind(target, items(name))
            if bool(run.value(test)) is left_out and name not in named:
                without.append(name)
        except (NotPlainError, RefusedNameError):
            return
    if without:
        yield test, without


def _items(save: FunctionModel, source: ast.expr) -> Any:
    """Return what makes an item of a loop out of a field's name; None where the loop runs over something else."""
    source = follow(save.file, source)
    if isinstance(source, ast.Call) and save.file.qualified(source.func) in ("list", "tuple", "sorted") and source.args:
        source = follow(save.file, source.args[0])
    if isinstance(source, ast.Call) and attribute_name(source) == "fields":
        return _Field
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
        if source.func.attr in ("items", "keys") and is_fields(follow(save.file, source.func.value)):
            return (lambda name: (name, Opaque())) if source.func.attr == "items" else str
    return str if is_fields(source) else None
