"""Contexts under which modules are built that say where, or under which of the engine's settings: training has one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from scaffold.port.names import Defined, External, Scope
from scaffold.port.own_names import name_of

_NAMES = ("set_current_diffusion_config", "set_current_vllm_config", "nullcontext")


def surrounds(scope: Scope, item: ast.withitem, beside: Sequence[ast.stmt]) -> bool:
    """Tell whether a ``with`` may be left out.

    Args:
        scope: names where it stands.
        item: its context.
        beside: the statements of the same block, where a name may be given the context before.
    """
    if item.optional_vars is not None:
        return False
    context: ast.expr = item.context_expr
    if isinstance(context, ast.Name):
        values = [
            node.value
            for node in beside
            if isinstance(node, ast.Assign) and [name_of(target) for target in node.targets] == [context.id]
        ]
        if len(values) != 1:
            return False
        context = values[0]
    if isinstance(context, ast.IfExp):
        return _is_surrounding(scope, context.body) and _is_surrounding(scope, context.orelse)
    return _is_surrounding(scope, context)


def _is_surrounding(scope: Scope, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    text = ast.unparse(node.func)
    origin = scope.origin(text.partition(".")[0])
    if isinstance(origin, External) and origin.path == "torch":
        return text == "torch.device"
    return isinstance(origin, (Defined, External)) and text.rpartition(".")[2] in _NAMES
