"""Methods that do their work at the first call only."""

from __future__ import annotations

import ast

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel


def one_shot_flag(method: FunctionModel, cls: ClassModel) -> ast.expr | None:
    """Return the test of a flag that a method sets, that nothing takes back, and that makes the method return early."""
    index = method.file.index
    for branch in index.nodes(ast.If, method.node):
        flag, last = branch.test, branch.body[-1]
        if index.parent(branch) is not method.node or not isinstance(last, ast.Return):
            continue
        if not (isinstance(flag, ast.Attribute) and isinstance(flag.value, ast.Name) and flag.value.id == method.bound):
            continue
        if any(index.nodes(ast.Call, statement) for statement in branch.body[:-1]):
            continue  # something is done before it returns
        stored = cls.instance_attributes(flag.attr)
        inside = [item for item in stored if item.method == method]
        elsewhere = [item for item in stored if item.method not in (method, cls.method("__init__"))]
        if inside and not elsewhere and all(item.value and method.file.value(item.value) is True for item in inside):
            return flag
    return None
