"""Look-ups of a reader of a training configuration: under which key, in which section, behind which question."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import attribute_name, resolve
from scaffold.check.model.follow import follow, returned
from scaffold.check.model.functions import FunctionModel


def is_section_of(read: FunctionModel, value: ast.expr) -> bool:
    """Whether an expression looks up a key that is written out, so that it is not the whole file."""
    return any(True for node in ast.walk(value) for _ in _look_ups(read, node))


def asked_key(read: FunctionModel, test: ast.expr) -> str | None:
    """Return the key that a test wants to be there: ``raw.get(key) == x``, ``key in raw``."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if isinstance(test.ops[0], ast.In):
        key = read.file.value(test.left)
        return key if isinstance(key, str) else None
    if isinstance(test.ops[0], (ast.Eq, ast.Is)):
        return next((key for _, key in _look_ups(read, test.left)), None)
    return None


def looked_up_elsewhere(read: FunctionModel, save: FunctionModel, value: ast.expr) -> bool:
    """Whether a value is looked up in something that certainly is not the object that was written."""
    if not isinstance(value, ast.Call) or not value.args or not isinstance(value.args[0], ast.Name):
        return False
    names = {node.value for node in save.nodes(ast.Constant) if isinstance(node, ast.Constant)}
    files = {name for name in names if isinstance(name, str) and name.endswith(".json")}
    return bool(files) and _is_other(read, follow(read.file, value.args[0]), files)


def _is_other(function: FunctionModel, value: ast.expr, files: set[str]) -> bool:
    """Whether a value is a section of a file, or another file than those of the configuration."""
    if any(True for _ in _look_ups(function, value)):
        return True
    if not isinstance(value, ast.Call):
        return False
    named = {function.file.value(item) for item in value.args}
    named = {name for name in named if isinstance(name, str) and name.endswith(".json")}
    if named:
        return not named & files
    called = resolve(function.file, value, function.cls)
    if not isinstance(called, FunctionModel) or not called.returns:
        return False
    return all(_is_other(called, given, files) for given in returned(called))


def builds_config(read: FunctionModel, call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("cls", name)


def sets_all_fields(read: FunctionModel) -> bool:
    return any(isinstance(call.func, ast.Name) and call.func.id == "setattr" for call in read.calls)


def section_of(read: FunctionModel, value: ast.expr) -> str | None:
    """Return the section that a value is taken from: ``raw["section"]["key"]``, by ``get`` or through a name."""
    for base in _looked_up(read, value):
        for outer, key in _look_ups(read, base):
            root = follow(read.file, outer)
            if isinstance(root, ast.Call) and attribute_name(root) in ("load", "loads"):
                return key
    return None


def _looked_up(read: FunctionModel, value: ast.expr) -> Iterator[ast.expr]:
    """Yield what an expression looks keys up in."""
    for node in ast.walk(value):
        for base, _ in _look_ups(read, node):
            yield base


def _look_ups(read: FunctionModel, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Name):
        node = follow(read.file, node)
    # ``x.get("a") or {}`` looks up in x as well.
    for part in node.values if isinstance(node, ast.BoolOp) else [node]:
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr == "get"
            and part.args
        ):
            key = read.file.value(part.args[0])
            if isinstance(key, str):
                yield part.func.value, key
        elif isinstance(part, ast.Subscript):
            key = read.file.value(part.slice)
            if isinstance(key, str):
                yield part.value, key
