"""What schedule functions are called with, and what only moves a schedule that is there."""

from __future__ import annotations

import ast

from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side
from scaffold.check.model.step_counts import step_count
from scaffold.check.rule import Hit, Hits


def is_only_moved(value: ast.expr) -> bool:
    """Whether a value keeps its numbers: moved to a device, cloned, cut."""
    kept = {"to", "cpu", "clone", "detach", "float", "contiguous"}
    if any(isinstance(node, ast.BinOp) for node in ast.walk(value)):
        return False
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(isinstance(call.func, ast.Attribute) and call.func.attr in kept for call in calls)


def given_nodes(side: Side, function: FunctionModel, call: ast.Call) -> list[tuple[FunctionModel | None, ast.AST]]:
    """Return what the arguments of a call are made of."""
    values = [*call.args, *(item.value for item in call.keywords)]
    return [(around, node) for value in values for around, _, node in origin(side, function, value).nodes]


def constant_count(
    training: Side,
    rollout: Side,
    function: FunctionModel,
    parameter: str,
    values: list[list[tuple[FunctionModel, ast.expr, object]]],
) -> Hits:
    """Compare a number of steps that one side writes down with one that is asked for on the other."""
    asked = [
        any(step_count(side, caller, node) is not None for caller, node, _ in given if caller is not function)
        for side, given in zip((training, rollout), values, strict=True)
    ]
    for at, given in enumerate(values):
        for caller, node, value in given:
            if asked[1 - at] and isinstance(value, int) and not isinstance(value, bool):
                yield Hit(
                    caller.file,
                    node,
                    f"{function.name}() gets {parameter}={value!r} here, and what is asked for on the other side",
                )


def called_within(training: Side, rollout: Side, function: FunctionModel) -> bool:
    return any(caller in training and caller in rollout for caller, _ in rollout.callers.get(function, []))


def sets_up_schedule(function: FunctionModel) -> bool:
    return any(
        word in name for name in (function.name, *function.parameters) for word in ("sigma", "schedul", "timestep")
    )
