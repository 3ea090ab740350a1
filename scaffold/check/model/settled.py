"""What a switch is set to where nobody says otherwise: defaults of parameters, of ``get`` and ``pop``, of the
environment."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.check.model.calls import argument, attribute_name, has_unpacking
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
    """Whether a call of a function of that name may give one of its parameters, anywhere in the tree."""
    at = function.positional.index(parameter) if parameter in function.positional else None
    project, everywhere = function.file.project, _names(function)
    # Code of verl-omni may build what the package registers.
    paths = dict.fromkeys([*(file.path for file in among), *project.files("verl_omni", ".py")])
    for file in (found for path in paths if (found := project.python(path)) is not None):
        names = everywhere | {"cls"} if len(everywhere) > 1 and file is function.file else everywhere
        if not any(name.encode() in file.data for name in names) or file.problem is not None:
            continue
        for call in file.index.nodes(ast.Call):
            if attribute_name(call) not in names or file.index.contains(function.node, call):
                continue
            if _foreign(function, file, call.func):
                continue
            if has_unpacking(call) or any(item.arg == parameter for item in call.keywords):
                return True
            if at is not None and at < len(call.args):
                return True
        if _handed_on(function, everywhere, file):
            return True
    return False


def _names(function: FunctionModel) -> set[str]:
    """Return the names that a function is called by: of a constructor also the class's."""
    built = function.cls is not None and function.name == "__init__"
    return {function.name, function.cls.name} if built and function.cls is not None else {function.name}


def _foreign(function: FunctionModel, file: PythonFile, named: ast.expr) -> bool:
    """Whether a name is certainly that of another library's function."""
    name = file.qualified(named)
    return name is not None and name.partition(".")[0] != function.file.module.partition(".")[0]


def _handed_on(function: FunctionModel, names: set[str], file: PythonFile) -> bool:
    """Whether a function is mentioned without being called, as in ``partial(cls.load, strict=True)``."""
    index = file.index
    method = function.cls is not None and len(names) == 1
    for node in (*index.nodes(ast.Attribute), *(() if method else index.nodes(ast.Name))):
        named = node.attr if isinstance(node, ast.Attribute) else node.id
        if named not in names or not isinstance(node.ctx, ast.Load):
            continue
        around = index.parent(node)
        # Classes are also mentioned where nothing is built: as a base, in an annotation.
        value = isinstance(around, (ast.Call, ast.keyword, ast.Assign)) or len(names) == 1
        called = isinstance(around, ast.Call) and around.func is node
        local = isinstance(node, ast.Name) and file.qualified(node) is None
        owner = isinstance(around, ast.Attribute)
        if value and not called and not owner and not local and not _foreign(function, file, node):
            return True
    return any(node.value == function.name for node in index.nodes(ast.Constant))


def _answered(
    file: PythonFile, function: FunctionModel | None, call: ast.Call, among: list[PythonFile], depth: int
) -> Any:
    name = file.qualified(call.func)
    if name == "bool" and len(call.args) == 1:
        inner = settled(file, call.args[0], among, depth + 1)
        return UNKNOWN if inner is UNKNOWN else bool(inner)
    default = call.args[1] if len(call.args) > 1 else ast.Constant(value=None)
    if name in _ENVIRONMENT and call.args:
        unset = argument(call, "default", 1)
        return file.value(unset) if unset is not None else None
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
