"""How many ones a mask has: of the whole batch, of its longest sample, or of each sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel

_KEEPING = ("float", "to", "reshape", "view", "long", "int", "unsqueeze", "expand", "type")


def counted_together(function: FunctionModel) -> Iterator[ast.Call]:
    """Yield counts of the ones of all samples that are subtracted from, or added to, positions."""
    totals: dict[str, ast.Call] = {}
    for name, value in function.assignments:
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPING:
            value = value.func.value
        if not isinstance(value, ast.Call) or not is_sum(value, False) or value.keywords:
            continue
        # The mask of one sample is picked out of the batch's, or comes from a loop over the samples.
        of = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else None
        looped = any(isinstance(node, (ast.For, ast.comprehension)) for node in function.file.index.ancestors(value))
        if isinstance(of, (ast.Name, ast.Attribute)) and not looped:
            totals[name] = value
    for node in function.nodes(ast.BinOp) if totals else ():
        assert isinstance(node, ast.BinOp)
        if not isinstance(node.op, (ast.Add, ast.Sub)):
            continue
        names = [side.id for side in (node.left, node.right) if isinstance(side, ast.Name)]
        if len(names) == 2 and any("pos" in name for name in names):
            for name in names:
                if name in totals:
                    yield totals.pop(name)


def is_total(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is the number of ones in a mask of the whole batch."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.BinOp):
        return is_total(value.left, names) or is_total(value.right, names)
    if isinstance(value, ast.IfExp):
        return is_total(value.body, names) or is_total(value.orelse, names)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name) and value.func.id == "int" and value.args:
        return is_total(value.args[0], names)
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("item", "long", "int"):
        return is_total(value.func.value, names)
    # The mask of one sample is picked out of the batch's.
    whole = isinstance(value.func, ast.Attribute) and isinstance(value.func.value, (ast.Name, ast.Attribute))
    return whole and is_sum(value, False)


def is_count(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is the number of ones in a mask: of the whole batch, or of its longest sample."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.BinOp):
        return is_count(value.left, names) or is_count(value.right, names)
    if isinstance(value, ast.IfExp):
        return is_count(value.body, names) or is_count(value.orelse, names)
    if isinstance(value, ast.Subscript):
        # The length of the first sample stands for all.
        return isinstance(value.slice, ast.Constant) and is_sum(value.value, True)
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    if isinstance(function, ast.Name) and function.id in ("int", "max") and value.args:
        return is_count(value.args[0], names) or (function.id == "max" and is_sum(value.args[0], None))
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in ("item", "long", "int"):
        return is_count(function.value, names)
    if function.attr in ("max", "amax") and not value.args:
        return is_sum(function.value, None)
    return is_sum(value, False)


def is_sum(value: ast.expr, dimension: bool | None) -> bool:
    """Whether a value is ``mask.sum(…)``; with or without a dimension, or either."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr not in ("sum", "count_nonzero"):
        return False
    # torch.count_nonzero(mask, dim) has the mask in front.
    module = ast.unparse(value.func.value) == "torch"
    given = len(value.args) > module or any(item.arg in ("dim", "axis") for item in value.keywords)
    of = value.args[0] if module and value.args else value.func.value
    text = ast.unparse(of).lower()
    return "mask" in text and (dimension is None or dimension == given)
