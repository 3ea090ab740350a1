"""How code asks for keys of a checkpoint: how they begin, whether they are among some, what it drops."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import attribute_name
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel


def key_names(target: ast.expr, source: ast.expr) -> set[str]:
    """Return the loop variable that holds checkpoint keys: of ``x.items()``, ``x.keys()``, or a generator of pairs."""
    if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Attribute):
        return set()
    if source.func.attr == "items" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return {target.elts[0].id}
    if source.func.attr == "keys" and isinstance(target, ast.Name):
        return {target.id}
    return set()


def asks_key(test: ast.expr, names: set[str]) -> bool:
    """Whether a test asks how a key begins or ends, or whether it is among some."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith") and is_one_of(node.func.value, names):
                return True
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In):
            if is_one_of(node.left, names) and not isinstance(node.comparators[0], (ast.Tuple, ast.List, ast.Set)):
                return True
    return False


def nothing_fits(function: FunctionModel, test: ast.expr) -> bool:
    """Whether a test says that a search through a table found nothing: ``not fitting``, ``row is None``."""
    found: ast.expr | None = None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and _is_none(test.comparators[0]):
        found = test.left
    if found is None:
        return False
    found = follow(function.file, found)
    if isinstance(found, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return True
    return isinstance(found, ast.Call) and attribute_name(found) in ("next", "get", "filter", "match", "fullmatch")


def of_configuration(function: FunctionModel, source: ast.expr, tests: list[ast.expr]) -> bool:
    """Whether what is filtered is a configuration for a constructor, and no weights.

    An object's ``to_dict()``, the fields of a class, the parameters of a signature, a name such as ``config``.
    """
    pending: list[ast.AST] = [source, *tests]
    seen: set[str] = set()
    while pending:
        for node in ast.walk(pending.pop()):
            if isinstance(node, (ast.Name, ast.Attribute)) and _configures(function, node):
                return True
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                pending += [value for name, value in function.assignments if name == node.id]
    return False


def _configures(function: FunctionModel, node: ast.Name | ast.Attribute) -> bool:
    if isinstance(node, ast.Name) and node.id in ("config", "cfg"):
        around = function.file.index.parent(node)
        asked = isinstance(around, ast.Attribute) and around.attr in ("items", "keys")
        return asked or isinstance(around, ast.Compare)
    if isinstance(node, ast.Attribute) and node.attr in ("to_dict", "__dataclass_fields__"):
        return True
    return function.file.qualified(node) in ("dataclasses.fields", "dataclasses.asdict", "inspect.signature")


def drops_key(node: ast.AST, names: set[str]) -> bool:
    """Whether a node takes a key out of a dictionary."""
    if isinstance(node, ast.Call):
        return attribute_name(node) == "pop" and bool(node.args) and is_one_of(node.args[0], names)
    if isinstance(node, ast.Delete):
        return any(isinstance(item, ast.Subscript) and is_one_of(item.slice, names) for item in node.targets)
    return False


def is_one_of(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is one of some names."""
    return isinstance(node, ast.Name) and node.id in names


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
