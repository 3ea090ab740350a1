"""Latents that a scheduler's wrapper records without the batch dimension that it put on them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.batch_dimensions import in_front
from scaffold.check.model.calls import argument, attribute_name
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import Side
from scaffold.check.model.window_records import result_lists

TENSORS = ("model_output", "sample")
_TURNING = {"transpose", "permute", "movedim", "moveaxis", "swapaxes", "unsqueeze", "reshape", "view"}


def put_on(function: FunctionModel, call: ast.Call) -> int | None:
    """Return how many dimensions a step's tensors get in front of those that came; None where not plain."""
    given = [sampling_argument(call, name) for name in TENSORS]
    counts = {in_front(function, value) if value is not None else None for value in given}
    return counts.pop() if len(counts) == 1 else None


def new_latents(function: FunctionModel, call: ast.Call) -> ast.Name | None:
    """Return the name that the first part of a step's result is unpacked into."""
    statement = function.file.index.parent(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return first if isinstance(first, ast.Name) else None


def recorded_unbatched(side: Side) -> Iterator[tuple[FunctionModel, ast.expr]]:
    """Yield what is put into a list as it came to the wrapper, where the list is stacked behind a batch dimension."""
    steps = dict(sampling_calls(side))
    for around, node, found in result_lists(side, "trajectory_latents"):
        index = around.file.index
        stack = index.parent(node)
        if not isinstance(stack, ast.Call) or attribute_name(stack) != "stack":
            continue
        given = argument(stack, "dim", 1)
        turned = any(isinstance(o, ast.Call) and attribute_name(o) in _TURNING for o in index.ancestors(stack))
        if given is None or around.file.value(given) != 1 or turned:
            continue
        for function, append in found:
            call = steps.get(function)
            added = put_on(function, call) if call is not None else None
            if call is None or added != 1 or not append.args:
                continue
            entry, first = append.args[0], new_latents(function, call)
            left = in_front(function, entry, first) if first is not None else None
            count = left + added if left is not None else in_front(function, entry)
            if count == 0:
                yield function, entry


def gets_batch(file: PythonFile, call: ast.Call) -> bool:
    """Whether a dimension is put in front of a call's result, ``….unsqueeze(0)`` or ``…[None]``."""
    for outer in file.index.ancestors(call):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.Call) and attribute_name(outer) == "unsqueeze":
            at = argument(outer, "dim", 0)
            return at is not None and file.value(at) == 0
        if isinstance(outer, ast.Subscript):
            first = outer.slice.elts[0] if isinstance(outer.slice, ast.Tuple) and outer.slice.elts else outer.slice
            return isinstance(first, ast.Constant) and first.value is None
    return False
