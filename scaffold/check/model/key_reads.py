"""Keys that a function reads of a mapping that it is given."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile
from scaffold.source.values import UNKNOWN

_DEEPEST = 8


class KeyRead(NamedTuple):
    """A key that a function reads of a mapping.

    Attributes:
        key: the key.
        file: where it is read.
        node: the expression that names it.
        optional: reading it cannot fail: ``get``, ``in``, or behind a test for it.
    """

    key: str
    file: PythonFile
    node: ast.AST
    optional: bool


def keys_read(
    function: FunctionModel, parameter: str, receiver: ClassModel | None = None, depth: int = 0
) -> list[KeyRead]:
    """Return the keys that a function reads of the mapping it gets as ``parameter``.

    ``p["k"]``, ``p.get("k")``, ``p.pop("k")``, ``"k" in p`` and ``"k" in p.keys()`` count; plain aliases and functions
    of the tree that the mapping is handed to are followed. Keys that are not plain from the text are left out.

    Args:
        function: the function.
        parameter: name of the parameter.
        receiver: class that ``self`` or ``cls`` is.
    """
    file, index = function.file, function.file.index
    names = {parameter, *_aliases(function, parameter)}
    found: list[KeyRead] = []
    tested: set[str] = set()
    for compare in index.nodes(ast.Compare, function.node):
        if len(compare.ops) == 1 and isinstance(compare.ops[0], (ast.In, ast.NotIn)):
            whole = compare.comparators[0]
            if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute) and whole.func.attr == "keys":
                whole = whole.func.value
            key = file.value(compare.left)
            if isinstance(whole, ast.Name) and whole.id in names and isinstance(key, str):
                tested.add(key)
                found.append(KeyRead(key, file, compare.left, optional=True))
    for node in index.nodes(ast.Subscript, function.node):
        if isinstance(node.value, ast.Name) and node.value.id in names and isinstance(node.ctx, ast.Load):
            key = file.value(node.slice)
            if isinstance(key, str):
                found.append(KeyRead(key, file, node.slice, optional=key in tested))
    for call in index.nodes(ast.Call, function.node):
        target = call.func
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in names:
            key = file.value(call.args[0]) if call.args else UNKNOWN
            if target.attr in ("get", "pop") and isinstance(key, str):
                optional = target.attr == "get" or len(call.args) > 1 or key in tested
                found.append(KeyRead(key, file, call.args[0], optional=optional))
        elif depth < _DEEPEST:
            called = resolve(file, call, receiver)
            if isinstance(called, FunctionModel) and called != function:
                for name, value in bind(call, called).items():
                    if isinstance(value, ast.Name) and value.id in names:
                        bound = receiver if receiver is not None and called.cls in receiver.mro else called.cls
                        found += keys_read(called, name, bound, depth + 1)
    return list(dict.fromkeys(found))


def _aliases(function: FunctionModel, name: str) -> set[str]:
    found = set()
    for node in function.file.index.nodes(ast.Assign, function.node):
        if isinstance(node.value, ast.Name) and node.value.id == name:
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found
