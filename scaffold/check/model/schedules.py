"""Noise schedules: where a side computes sigmas, and where it puts them into a scheduler."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.calls import keyword
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

SPACED = {
    "torch.linspace",
    "torch.logspace",
    "torch.arange",
    "numpy.linspace",
    "numpy.logspace",
    "numpy.arange",
    "numpy.geomspace",
}
_GIVEN = ("sigmas", "timesteps")


class Schedule(NamedTuple):
    """How a side sets its scheduler up.

    Attributes:
        computed: function -> the expression that spaces the noise levels there.
        plain: calls of ``set_timesteps`` that are given neither sigmas nor timesteps.
        set_up: whether a scheduler is given timesteps at all.
    """

    computed: dict[FunctionModel, ast.AST]
    plain: list[tuple[FunctionModel, ast.Call]]
    set_up: bool


def schedule_of(side: Side) -> Schedule:
    """Return how a side sets its scheduler up."""
    computed: dict[FunctionModel, ast.AST] = {}
    plain = []
    set_up = False
    for function, call in side.calls("set_timesteps"):
        target = call.func
        own = (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == function.bound
        )
        if own or side.called(function, call) is not None or asked_only(function, call):
            continue
        set_up = True
        values = [value for name in _GIVEN if (value := keyword(call, name)) is not None]
        if not values and not any(item.arg is None for item in call.keywords):
            plain.append((function, call))
        for value in values:
            computed.update(_spaced(side, function, value))
    for function, value in stored(side):
        set_up = True
        computed.update(_spaced(side, function, value))
    return Schedule(computed, [] if computed else plain, set_up)


def asked_only(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a scheduler is made in the function and set up only to read its noise levels there."""
    target = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(target, ast.Name) or not made_here(function, target):
        return False
    nodes = function.file.index.nodes(ast.Attribute, function.node)
    return any(node.attr in _GIVEN and _of(node, target.id) for node in nodes)


def made_here(function: FunctionModel, name: ast.Name) -> bool:
    """Whether a name stands for an object that a call in the function makes, and that never leaves it."""
    values = [value for other, value in function.assignments if other == name.id]
    if name.id in function.parameters or not values or not all(isinstance(value, ast.Call) for value in values):
        return False
    index = function.file.index
    loads = [n for n in index.nodes(ast.Name, function.node) if n.id == name.id and isinstance(n.ctx, ast.Load)]
    return all(isinstance(index.parent(node), ast.Attribute) for node in loads)


def _of(node: ast.Attribute, name: str) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == name and isinstance(node.ctx, ast.Load)


def stored(side: Side) -> Iterator[tuple[FunctionModel, ast.expr]]:
    """Yield what is put into ``scheduler.sigmas`` and ``scheduler.timesteps``."""
    for function in side.functions:
        for statement in function.file.index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                # ``self.timesteps = …`` of a class that is no scheduler is its own affair.
                if isinstance(target, ast.Attribute) and target.attr in _GIVEN:
                    if not (isinstance(target.value, ast.Name) and target.value.id == function.bound):
                        yield function, statement.value


def _spaced(side: Side, function: FunctionModel, value: ast.expr) -> Iterator[tuple[FunctionModel, ast.AST]]:
    for around, file, node in origin(side, function, value).nodes:
        if around is None or around not in side:
            continue
        if (isinstance(node, ast.Call) and file.qualified(node.func) in SPACED) or isinstance(node, ast.ListComp):
            yield around, node
