"""Masks of padded prompts that a function leaves out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

PADDING = "torch.nn.utils.rnn.pad_sequence"


def left_out_masks(side: Side) -> Iterator[tuple[FunctionModel, ast.expr]]:
    """Yield the None in the place of a mask that is left out below a number, where only equal lengths need none."""
    for function in side.functions:
        if not any(function.file.qualified(call.func) == PADDING for call in function.calls):
            continue
        for item in function.returns:
            value = item.value
            last = value.elts[-1] if isinstance(value, ast.Tuple) and len(value.elts) == 2 else None
            around = function.file.index.parent(item)
            if not (isinstance(last, ast.Constant) and last.value is None and isinstance(around, ast.If)):
                continue
            test = around.test
            bounds = test.comparators if isinstance(test, ast.Compare) and len(test.ops) == 1 else []
            number = function.file.value(bounds[0]) if bounds else None
            ordered = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            if ordered and isinstance(number, int) and number > 2 and item in around.body:
                yield function, last
