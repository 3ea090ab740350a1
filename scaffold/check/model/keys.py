"""Keys of dictionaries: those that a function builds, those that it reads of a mapping it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile
from scaffold.source.values import UNKNOWN

_DEEPEST = 8


class Keys:
    """Keys of a dictionary that code builds.

    Args:
        complete: no other key can be in it.

    Attributes:
        nodes: key -> the node that names it (a constant, a keyword) and its file.
        values: key -> the expression it is given, the last one written.
    """

    def __init__(self, complete: bool = True) -> None:
        self.nodes: dict[str, tuple[PythonFile, ast.AST]] = {}
        self.values: dict[str, ast.expr] = {}
        self.complete = complete

    def add(self, file: PythonFile, key: str, node: ast.AST, value: ast.expr | None) -> None:
        """Add a key."""
        self.nodes[key] = (file, node)
        if value is not None:
            self.values[key] = value

    def merge(self, other: Keys | None) -> None:
        """Add the keys of another dictionary; None is one whose keys are unknown."""
        if other is None:
            self.complete = False
            return
        for key, (file, node) in other.nodes.items():
            self.add(file, key, node, other.values.get(key))
        self.complete = self.complete and other.complete


def dict_keys(function: FunctionModel, node: ast.expr, depth: int = 0) -> Keys | None:
    """Return the keys of the dictionary that an expression of a function evaluates to; None where it is none.

    Literals, ``dict(…)``, ``{**other}``, ``a | b``, names with later additions, and the results of functions of the
    tree are followed.
    """
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Dict):
        return _literal(function, node, depth)
    if isinstance(node, ast.Call):
        return _call(function, node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return either([dict_keys(function, part, depth + 1) for part in (node.left, node.right)])
    if isinstance(node, ast.IfExp):
        return either([dict_keys(function, part, depth + 1) for part in (node.body, node.orelse)])
    if isinstance(node, ast.DictComp):
        return Keys(complete=False)
    return _name(function, node, depth) if isinstance(node, ast.Name) else None


def either(options: list[Keys | None]) -> Keys | None:
    """Return the keys that one of several dictionaries may have; None where one of them is not known."""
    if not options or None in options:
        return None
    merged = Keys()
    for keys in options:
        merged.merge(keys)
    return merged


def _literal(function: FunctionModel, node: ast.Dict, depth: int) -> Keys:
    keys = Keys()
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            keys.merge(dict_keys(function, value, depth + 1))
            continue
        name = function.file.value(key)
        if isinstance(name, str):
            keys.add(function.file, name, key, value)
        else:
            keys.complete = False
    return keys


def _call(function: FunctionModel, node: ast.Call, depth: int) -> Keys | None:
    file = function.file
    name = file.qualified(node.func)
    if name in ("dict", "collections.OrderedDict"):
        keys = Keys()
        _take_arguments(keys, function, node, depth)
        return keys
    called = resolve(file, node)
    if not isinstance(called, FunctionModel) or not called.returns:
        return None
    return either([dict_keys(called, item.value, depth + 1) for item in called.returns if item.value is not None])


def _name(function: FunctionModel, node: ast.Name, depth: int) -> Keys | None:
    bindings = function.file.scopes.lookup(node.id, node)
    if not bindings or any(binding.kind != "variable" or binding.value is None for binding in bindings):
        return None
    options = []
    for binding in bindings:
        assert binding.value is not None
        refers = isinstance(binding.value, ast.Name) and binding.value.id == node.id
        if any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(binding.value)) and not refers:
            # ``x = {**x, "k": v}`` extends the previous dictionary.
            options.append(_rebuilt(function, node.id, binding.value, depth))
        else:
            options.append(dict_keys(function, binding.value, depth + 1))
    keys = either(options)
    if keys is not None:
        for addition in _additions(function, node.id, depth):
            keys.merge(addition)
    return keys


def _rebuilt(function: FunctionModel, name: str, value: ast.expr, depth: int) -> Keys | None:
    if not isinstance(value, ast.Dict):
        return None
    keys = Keys()
    for key, item in zip(value.keys, value.values, strict=True):
        if key is None and isinstance(item, ast.Name) and item.id == name:
            continue
        keys.merge(_literal(function, ast.Dict(keys=[key], values=[item]), depth + 1))
    return keys


def _additions(function: FunctionModel, name: str, depth: int) -> Iterator[Keys]:
    file, index = function.file, function.file.index
    for node in index.nodes(ast.Subscript, function.node):
        if isinstance(node.value, ast.Name) and node.value.id == name and isinstance(node.ctx, ast.Store):
            key = file.value(node.slice)
            keys = Keys(complete=isinstance(key, str))
            statement = index.parent(node)
            value = statement.value if isinstance(statement, ast.Assign) else None
            if isinstance(key, str):
                keys.add(file, key, node.slice, value)
            yield keys
    for call in index.nodes(ast.Call, function.node):
        target = call.func
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == name):
            continue
        if target.attr == "update":
            keys = Keys()
            _take_arguments(keys, function, call, depth)
            yield keys
        elif target.attr == "setdefault" and call.args:
            key = file.value(call.args[0])
            keys = Keys(complete=isinstance(key, str))
            if isinstance(key, str):
                keys.add(file, key, call.args[0], call.args[1] if len(call.args) > 1 else None)
            yield keys


def _take_arguments(keys: Keys, function: FunctionModel, call: ast.Call, depth: int) -> None:
    """Add the arguments of ``dict(…)`` and ``update(…)``."""
    for argument in (*call.args, *(item.value for item in call.keywords if item.arg is None)):
        keys.merge(dict_keys(function, argument, depth + 1))
    for item in call.keywords:
        if item.arg is not None:
            keys.add(function.file, item.arg, item, item.value)


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
    of the tree that the mapping is passed to are followed. Keys that the text does not tell are left out.

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
