"""Values of constant expressions of the tree. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from scaffold.check.model.python import ClassModel, PythonFile
from scaffold.limits.bounded import Budget, TooLargeError
from scaffold.source.frame import Frame
from scaffold.source.interpreter import Handler, Interpreter
from scaffold.source.modules import ModuleGraph
from scaffold.source.plain import Plain
from scaffold.source.values import UNKNOWN, External, UndecidedError, Unknown

MOST = 30_000
_UNREAD = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.Slice, ast.Lambda, ast.Await)
_CONTAINERS = frozenset({"tuple", "list", "set", "frozenset", "dict"})


def known(value: object) -> bool:
    """Whether a value is known to its last element."""
    if isinstance(value, Unknown):
        return False
    if isinstance(value, dict):
        return all(known(key) and known(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(known(item) for item in value)
    return True


def evaluate(file: PythonFile, node: ast.expr) -> Any:
    """Return the value of an expression.

    Literals, containers (with `UNKNOWN` elements where only those are unknown), operators, f-strings, names with one
    assignment in their scope, constants of other modules of the tree, class attributes, ``tuple(…)`` and the like.
    """
    if isinstance(node, ast.Constant):
        return node.value
    try:
        value = _Text().run.evaluate(node, _frame(file))
    except (TooLargeError, UndecidedError, RecursionError):
        return UNKNOWN
    return UNKNOWN if isinstance(value, Unknown) else value


def _frame(file: PythonFile) -> Frame:
    return Frame(file)  # type: ignore[arg-type]  # names are looked up in the file's own scopes


def _named(run: Interpreter, node: ast.Name | ast.Attribute, frame: Frame) -> Any:
    file: Any = frame.module
    project = file.project
    if isinstance(node, ast.Name):
        bindings = file.scopes.lookup(node.id, node)
        if len(bindings) == 1 and bindings[0].kind == "variable" and bindings[0].value is not None:
            if node.id in file.changed_names:
                return UNKNOWN
            return run.evaluate(bindings[0].value, frame)
        if bindings and bindings[0].kind != "import":
            return UNKNOWN
    elif isinstance(node.value, ast.Name):
        owner = file.function_around(node)
        if owner is not None and owner.cls is not None and node.value.id == owner.bound:
            if owner.cls.instance_attributes(node.attr):
                return UNKNOWN
            return _class_value(run, owner.cls, node.attr)
        cls = project.class_of(file, node.value)
        if cls is not None:
            return _class_value(run, cls, node.attr)
    name = project.qualified(file, node)
    found = project.definition(name) if name is not None else None
    if found is None:
        return UNKNOWN
    other, binding = found
    if binding.kind != "variable" or binding.value is None:
        return UNKNOWN
    # The container may change after its definition.
    if any(name in other.changed_names for name, bound in other.names.items() if binding in bound):
        return UNKNOWN
    return run.evaluate(binding.value, _frame(other))


def _class_value(run: Interpreter, cls: ClassModel, name: str) -> Any:
    attribute = cls.attribute(name)
    if attribute is None or attribute.value is None:
        return UNKNOWN
    return run.evaluate(attribute.value, _frame(attribute.file))


def _called(run: Interpreter, node: ast.Call, frame: Frame) -> Any:
    file: Any = frame.module
    name = file.qualified(node.func)
    if name not in _CONTAINERS:
        return UNKNOWN
    return run.domain.call(External(f"builtins.{name}"), *run.arguments(node, frame), None)


def _not_read(run: Interpreter, node: ast.expr, frame: Frame) -> Any:
    return UNKNOWN


class _Text(Plain):
    """Python values, with names resolved by their bindings; nothing is executed."""

    handlers: Mapping[type[ast.AST], Handler] = {
        ast.Name: _named,
        ast.Attribute: _named,
        ast.Call: _called,
        **dict.fromkeys(_UNREAD, _not_read),
    }

    def __init__(self) -> None:
        super().__init__(ModuleGraph(None), Budget(MOST, TooLargeError))
