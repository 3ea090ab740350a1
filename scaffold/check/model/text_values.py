"""Which expressions are certainly text."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import attribute_name
from scaffold.check.model.pyfile import PythonFile

_METHODS = {
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "title",
    "format",
    "join",
    "replace",
    "dumps",
    "removeprefix",
}
_FUNCTIONS = {"str", "repr", "dumps", "input"}
_LISTS = {"split", "rsplit", "splitlines", "readlines"}


def is_text(file: PythonFile, value: ast.expr, hops: int = 8) -> bool:
    """Whether an expression is certainly a string: a literal, what a text method gives, a name declared as ``str``."""
    if not hops:
        return False
    if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        return True
    if isinstance(value, ast.Call):
        return attribute_name(value) in (_METHODS if isinstance(value.func, ast.Attribute) else _FUNCTIONS)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return is_text(file, value.left, hops - 1) and is_text(file, value.right, hops - 1)
    if not isinstance(value, ast.Name):
        return False
    bindings = file.scopes.lookup(value.id, value)
    if len(bindings) != 1:
        return False
    binding = bindings[0]
    if binding.kind == "parameter":
        return isinstance(binding.node, ast.arg) and _names_str(binding.node.annotation)
    if binding.kind == "variable" and binding.value is not None:
        return is_text(file, binding.value, hops - 1)
    loop = file.index.parent(binding.node) if binding.kind == "variable" else None
    if isinstance(loop, (ast.For, ast.comprehension)) and loop.target is binding.node:
        return _holds_text(file, loop.iter, hops - 1)
    return False


def _holds_text(file: PythonFile, value: ast.expr, hops: int) -> bool:
    """Whether an expression is certainly a sequence of strings."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and all(is_text(file, item, hops) for item in value.elts)
    if isinstance(value, ast.Name):
        bindings = file.scopes.lookup(value.id, value)
        single = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "variable" else None
        return single is not None and hops > 0 and _holds_text(file, single, hops - 1)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return value.func.attr in _LISTS
    name = file.qualified(value.func)
    function = file.project.function_named(name) if name is not None else None
    returned = function.node.returns if function is not None else None
    if isinstance(returned, ast.Subscript) and isinstance(returned.value, ast.Name):
        return returned.value.id in ("list", "Sequence", "Iterable", "Iterator", "List") and _names_str(returned.slice)
    return False


def _names_str(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "str"
