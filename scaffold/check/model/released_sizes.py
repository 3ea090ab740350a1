"""What a test comes to with the sizes of the released model, which are the defaults of the configuration's class."""

from __future__ import annotations

import ast

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.operators import OF_NUMBERS


def holds(package: Package, function: FunctionModel, test: ast.expr) -> bool | None:
    """Return whether a test about sizes holds; None where it is about something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = holds(package, function, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [holds(package, function, part) for part in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in parts else None if None in parts else not decides
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in OF_NUMBERS:
        return None
    left, right = (_number(package, function, side) for side in (test.left, test.comparators[0]))
    sized = any(_size(package, function, side) is not None for side in (test.left, test.comparators[0]))
    if not sized or left is None or right is None:
        return None
    return bool(OF_NUMBERS[type(test.ops[0])](left, right))


def _number(package: Package, function: FunctionModel, expr: ast.expr) -> float | None:
    size = _size(package, function, expr)
    value = size if size is not None else function.file.value(expr)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _size(package: Package, function: FunctionModel, expr: ast.expr) -> float | None:
    """Return the default of a field of the configuration, or the length of a list of layers that has one."""
    config = package.config_class
    if config is None:
        return None
    if isinstance(expr, ast.Attribute) and expr.attr in config.fields and "config" in ast.unparse(expr.value):
        field = config.fields[expr.attr]
        value = field.file.value(field.value) if field.value is not None else None
        return value if isinstance(value, (int, float)) else None
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "len" and len(expr.args) == 1:
        layers = expr.args[0]
        if isinstance(layers, ast.Attribute) and function.cls is not None:
            for assigned in function.cls.instance_attributes(layers.attr):
                ranges = assigned.file.index.nodes(ast.Call, assigned.value) if assigned.value is not None else []
                for call in ranges:
                    if isinstance(call.func, ast.Name) and call.func.id == "range" and len(call.args) == 1:
                        return _size(package, function, call.args[0])
    return None
