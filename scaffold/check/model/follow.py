"""What an expression stands for: local names followed to what they were assigned, instances to their class."""

from __future__ import annotations

import ast

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile


def returned(function: FunctionModel) -> list[ast.expr]:
    """Return what a function returns, plain names replaced by what they were last assigned where that is one thing."""
    found = []
    for statement in function.returns:
        value = statement.value if statement.value is not None else ast.Constant(value=None)
        found.append(follow(function.file, value))
    return found


def follow(file: PythonFile, value: ast.expr, hops: int = 5) -> ast.expr:
    """Return what a plain local name stands for, where it is assigned exactly once."""
    while isinstance(value, ast.Name) and hops:
        bindings = file.scopes.lookup(value.id, value)
        if len(bindings) != 1 or bindings[0].kind != "variable" or bindings[0].value is None:
            break
        value, hops = bindings[0].value, hops - 1
    return value


def instance_class(function: FunctionModel, value: ast.expr) -> ClassModel | None:
    """Return the class of the tree that ``value`` is an instance of: ``C(…)``, ``C.from_…(…)``, ``x.to(…)`` of one."""
    file = function.file
    for _ in range(5):
        value = follow(file, value)
        if not isinstance(value, ast.Call):
            return None
        cls = file.project.class_of(file, value.func)
        if cls is not None:
            return cls
        if not isinstance(value.func, ast.Attribute):
            return None
        if value.func.attr.startswith("from_"):
            return file.project.class_of(file, value.func.value)
        if value.func.attr not in ("to", "eval", "train", "cuda", "cpu", "float", "bfloat16", "requires_grad_"):
            return None
        value = value.func.value
    return None
