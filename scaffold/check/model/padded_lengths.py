"""Names that hold the padded length of the text."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel

_TEXT = ("text", "token", "prompt", "ids", "context", "ctx")


_NOT_TEXT = ("latent", "hidden", "image", "img", "pos")


def padded_lengths(functions: list[FunctionModel]) -> dict[FunctionModel, set[str]]:
    """Return for each function the names that hold the padded length of the text."""
    found: dict[FunctionModel, set[str]] = {function: set() for function in functions}
    for _ in range(3):
        for function in functions:
            for name, value in function.assignments:
                if not name.startswith(".") and is_padded_length(value, found[function]):
                    found[function].add(name)
            for call in function.calls:
                called = resolve(function.file, call, function.cls)
                target = called.method("__init__") if isinstance(called, ClassModel) else called
                if not isinstance(target, FunctionModel) or target not in found:
                    continue
                for parameter, given in bind(call, target).items():
                    if is_padded_length(given, found[function]):
                        found[target].add(parameter)
    return found


def is_padded_length(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is ``text.shape[1]`` or ``text.size(1)``, or a name for it."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.IfExp):
        return is_padded_length(value.body, names) or is_padded_length(value.orelse, names)
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name) and value.func.id in ("int", "float") and len(value.args) == 1:
            return is_padded_length(value.args[0], names)
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("float", "item") and not value.args:
            return is_padded_length(value.func.value, names)
        if is_longest(value):
            return True
        if isinstance(value.func, ast.Attribute) and value.func.attr == "size" and len(value.args) == 1:
            return _is_one(value.args[0]) and is_text(value.func.value)
        return False
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute) and value.value.attr == "shape":
        return _is_one(value.slice) and is_text(value.value.value)
    return False


def is_longest(value: ast.AST) -> bool:
    """Whether a value is the length of the batch's longest text: ``mask.sum(dim=1).max()``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.args or value.keywords:
        return False
    of = value.func.value
    summed = isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "sum"
    return value.func.attr in ("max", "amax") and summed and "mask" in ast.unparse(of)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def is_text(node: ast.expr) -> bool:
    text = ast.unparse(node).lower()
    return any(word in text for word in _TEXT) and not any(word in text for word in _NOT_TEXT)
