"""Noise schedules: where a side computes sigmas, and where it puts them into a scheduler."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Schedule:
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
        if own or side.called(function, call) is not None:
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
