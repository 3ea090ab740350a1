"""Keys of the dictionaries that a function builds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile

_DEEPEST = 8


@dataclass
class Keys:
    """Keys of a dictionary that code builds.

    Attributes:
        nodes: key -> the node that names it (a constant, a keyword) and its file.
        values: key -> the expression it is given, the last one written.
        complete: no other key can be in it.
        maybe: keys that only some paths set.
    """

    nodes: dict[str, tuple[PythonFile, ast.AST]] = field(default_factory=dict)
    values: dict[str, ast.expr] = field(default_factory=dict)
    complete: bool = True
    maybe: set[str] = field(default_factory=set)

    def add(self, file: PythonFile, key: str, node: ast.AST, value: ast.expr | None, maybe: bool = False) -> None:
        """Note a key."""
        if maybe and key not in self.nodes:
            self.maybe.add(key)
        if not maybe:
            self.maybe.discard(key)
        self.nodes[key] = (file, node)
        if value is not None:
            self.values[key] = value

    def merge(self, other: Keys, maybe: bool = False) -> None:
        """Take the keys of another dictionary on."""
        for key, (file, node) in other.nodes.items():
            self.add(file, key, node, other.values.get(key), maybe or key in other.maybe)
        self.complete = self.complete and other.complete


def dict_keys(function: FunctionModel, node: ast.expr, depth: int = 0) -> Keys | None:
    """Return the keys of the dictionary that an expression of a function gives; None where it gives none.

    Literals, ``dict(…)``, ``{**other}``, ``a | b``, names with what is put into them later, and the results of
    functions of the tree are followed.
    """
    file = function.file
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Dict):
        return _literal(function, node, depth)
    if isinstance(node, ast.Call):
        return _call(function, node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        left, right = dict_keys(function, node.left, depth + 1), dict_keys(function, node.right, depth + 1)
        if left is None or right is None:
            return None
        left.merge(right)
        return left
    if isinstance(node, ast.IfExp):
        either = [dict_keys(function, part, depth + 1) for part in (node.body, node.orelse)]
        if None in either:
            return None
        return _either([keys for keys in either if keys is not None])
    if isinstance(node, ast.DictComp):
        return Keys(complete=False)
    if isinstance(node, ast.Name):
        return _name(function, node, depth)
    if isinstance(node, ast.Attribute):
        value = file.value(node)
        if isinstance(value, dict):
            keys = Keys()
            for key in value:
                if isinstance(key, str):
                    keys.add(file, key, node, None)
                else:
                    keys.complete = False
            return keys
    return None


def _either(options: list[Keys]) -> Keys:
    merged = Keys()
    everywhere = set.intersection(*(set(keys.nodes) - keys.maybe for keys in options))
    for keys in options:
        for key, (file, node) in keys.nodes.items():
            merged.add(file, key, node, keys.values.get(key), key not in everywhere)
        merged.complete = merged.complete and keys.complete
    return merged


def _literal(function: FunctionModel, node: ast.Dict, depth: int) -> Keys:
    keys = Keys()
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inner = dict_keys(function, value, depth + 1)
            if inner is None:
                keys.complete = False
            else:
                keys.merge(inner)
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
        for argument in node.args:
            inner = dict_keys(function, argument, depth + 1)
            if inner is None:
                keys.complete = False
            else:
                keys.merge(inner)
        for item in node.keywords:
            inner = dict_keys(function, item.value, depth + 1) if item.arg is None else None
            if item.arg is not None:
                keys.add(file, item.arg, item, item.value)
            elif inner is None:
                keys.complete = False
            else:
                keys.merge(inner)
        return keys
    if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" and not node.args:
        return dict_keys(function, node.func.value, depth + 1)
    called = resolve(file, node)
    if not isinstance(called, FunctionModel) or not called.returns:
        return None
    options = [dict_keys(called, item.value, depth + 1) for item in called.returns if item.value is not None]
    if not options or None in options:
        return None
    return _either([keys for keys in options if keys is not None])


def _name(function: FunctionModel, node: ast.Name, depth: int) -> Keys | None:
    file = function.file
    bindings = file.scopes.lookup(node.id, node)
    if any(binding.kind == "import" for binding in bindings):
        value = file.value(node)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            return None
        keys = Keys()
        for key in value:
            keys.add(file, key, node, None)
        return keys
    if not bindings or any(binding.kind != "variable" or binding.value is None for binding in bindings):
        return None
    options = []
    for binding in bindings:
        assert binding.value is not None
        refers = isinstance(binding.value, ast.Name) and binding.value.id == node.id
        if any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(binding.value)) and not refers:
            # ``x = {**x, "k": v}`` builds on the one before.
            inner = _rebuilt(function, node.id, binding.value, depth)
        else:
            inner = dict_keys(function, binding.value, depth + 1)
        if inner is None:
            return None
        options.append(inner)
    keys = _either(options) if len(options) > 1 else options[0]
    for addition in _additions(function, node.id, depth):
        keys.merge(addition, maybe=True)
    # What is put in on every path is no "maybe"; only additions in a branch are.
    keys.maybe -= {key for key in keys.maybe if _on_every_path(function, keys.nodes[key][1])}
    return keys


def _rebuilt(function: FunctionModel, name: str, value: ast.expr, depth: int) -> Keys | None:
    if not isinstance(value, ast.Dict):
        return None
    keys = Keys()
    for key, item in zip(value.keys, value.values, strict=True):
        if key is None and isinstance(item, ast.Name) and item.id == name:
            continue
        part = ast.Dict(keys=[key], values=[item])
        inner = _literal(function, part, depth + 1)
        keys.merge(inner)
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
            yield _update(function, call, depth)
        elif target.attr == "setdefault" and call.args:
            key = file.value(call.args[0])
            keys = Keys(complete=isinstance(key, str))
            if isinstance(key, str):
                keys.add(file, key, call.args[0], call.args[1] if len(call.args) > 1 else None)
            yield keys


def _update(function: FunctionModel, call: ast.Call, depth: int) -> Keys:
    keys = Keys()
    for argument in (*call.args, *(item.value for item in call.keywords if item.arg is None)):
        inner = dict_keys(function, argument, depth + 1)
        if inner is None:
            keys.complete = False
        else:
            keys.merge(inner)
    for item in call.keywords:
        if item.arg is not None:
            keys.add(function.file, item.arg, item, item.value)
    return keys


def _on_every_path(function: FunctionModel, node: ast.AST) -> bool:
    index = function.file.index
    try:
        around = list(index.ancestors(node))
    except KeyError:
        return False
    for outer in around:
        if outer is function.node:
            return True
        if isinstance(outer, (ast.If, ast.For, ast.While, ast.Try, ast.IfExp, ast.Match, ast.AsyncFor)):
            return False
    return False
