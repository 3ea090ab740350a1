"""What a switch is set to where nobody says otherwise: defaults of parameters, of ``get`` and ``pop``, of the
environment."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.check.model.calls import attribute_name, has_unpacking
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.values import UNKNOWN

_DEEPEST = 8
_ENVIRONMENT = ("os.environ.get", "os.getenv", "os.environ.pop")


def settled(file: PythonFile, expr: ast.expr, among: list[PythonFile], depth: int = 0) -> Any:
    """Return the value of an expression where no code gives another one; `UNKNOWN` where that is not certain.

    Args:
        file: where the expression stands.
        expr: the expression.
        among: files whose calls may give a parameter, or a keyword, another value.
    """
    value = file.value(expr)
    if value is not UNKNOWN or depth > _DEEPEST:
        return value
    function = file.function_around(expr)
    if isinstance(expr, ast.Name) and function is not None:
        return _named(function, expr, among, depth)
    if isinstance(expr, ast.Call):
        return _answered(file, function, expr, among, depth)
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Not):
        inner = settled(file, expr.operand, among, depth + 1)
        return UNKNOWN if inner is UNKNOWN else not inner
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1 and isinstance(expr.ops[0], (ast.Eq, ast.NotEq, ast.In)):
        left, right = (settled(file, side, among, depth + 1) for side in (expr.left, expr.comparators[0]))
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if isinstance(expr.ops[0], ast.In):
            return left in right if isinstance(right, (list, tuple, set)) else UNKNOWN
        return (left == right) == isinstance(expr.ops[0], ast.Eq)
    return UNKNOWN


def _named(function: FunctionModel, name: ast.Name, among: list[PythonFile], depth: int) -> Any:
    bindings = reaching(function, name)
    if len(bindings) != 1:
        return UNKNOWN
    if bindings[0].kind == "variable" and bindings[0].value is not None:
        return settled(function.file, bindings[0].value, among, depth + 1)
    default = function.default(name.id)
    if bindings[0].kind != "parameter" or default is None or _given(function, name.id, among):
        return UNKNOWN
    return function.file.value(default)


def _given(function: FunctionModel, parameter: str, among: list[PythonFile]) -> bool:
    """Whether a call of a function of that name may give one of its parameters."""
    at = function.positional.index(parameter) if parameter in function.positional else None
    for file in among:
        if function.name.encode() not in file.data:
            continue
        for call in file.index.nodes(ast.Call):
            if attribute_name(call) != function.name or file.index.contains(function.node, call):
                continue
            if has_unpacking(call) or any(item.arg == parameter for item in call.keywords):
                return True
            if at is not None and at < len(call.args):
                return True
    return False


def _answered(
    file: PythonFile, function: FunctionModel | None, call: ast.Call, among: list[PythonFile], depth: int
) -> Any:
    name = file.qualified(call.func)
    if name == "bool" and len(call.args) == 1:
        inner = settled(file, call.args[0], among, depth + 1)
        return UNKNOWN if inner is UNKNOWN else bool(inner)
    default = call.args[1] if len(call.args) > 1 else ast.Constant(value=None)
    if name in _ENVIRONMENT and call.args:
        return file.value(default) if len(call.args) > 1 else None
    if name == "getattr" and len(call.args) == 3:
        attribute = file.value(call.args[1])
        known = isinstance(attribute, str) and not _set_somewhere(attribute, among)
        return file.value(call.args[2]) if known and _own(function, call.args[0]) else UNKNOWN
    target = call.func
    if function is None or function.kwarg is None or not isinstance(target, ast.Attribute) or not call.args:
        return UNKNOWN
    if target.attr not in ("get", "pop") or not isinstance(target.value, ast.Name) or target.value.id != function.kwarg:
        return UNKNOWN
    key = file.value(call.args[0])
    if not isinstance(key, str) or _given(function, key, among):
        return UNKNOWN
    return file.value(default) if len(call.args) > 1 else None


def _own(function: FunctionModel | None, owner: ast.expr) -> bool:
    """Whether an attribute is asked of ``self`` or ``cls``, which code of the package makes."""
    return function is not None and isinstance(owner, ast.Name) and owner.id == function.bound


def _set_somewhere(attribute: str, among: list[PythonFile]) -> bool:
    for file in among:
        if any(node.attr == attribute and isinstance(node.ctx, ast.Store) for node in file.index.nodes(ast.Attribute)):
            return True
        if any(attribute in cls.own_attributes or attribute in cls.methods for cls in file.classes):
            return True
    return False
