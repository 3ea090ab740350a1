"""What a denoiser reads from the engine's context of a forward pass, as arguments of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.port.names import Defined, Scope
from scaffold.source.syntax import walk_tree

_CONTEXT = "get_forward_context"
# What a context says about groups of devices; one device needs none of it.
_OF_GROUPS = ("sp_", "omni_diffusion_config", "ulysses", "ring")


@dataclass(frozen=True)
class ContextArguments:
    """What a method is given in place of reading it.

    Attributes:
        fields: attributes of the context, each with the argument that stands for it.
        module: dotted name of the module that has the context.
    """

    fields: dict[str, str]
    module: str


def context_arguments(method: ast.FunctionDef, scope: Scope) -> ContextArguments | None:
    """Return an argument for each attribute of the context that a method reads.

    None where it reads none, or does anything else with the context: what the engine says about groups of devices has
    its answers already, and what is handed on is read elsewhere.
    """
    calls = [node for node in walk_tree(method) if _is_call(node, scope)]
    if not calls:
        return None
    bound = [node for node in walk_tree(method) if isinstance(node, ast.Assign) and _is_call(node.value, scope)]
    held = {node.targets[0].id for node in bound if isinstance(node.targets[0], ast.Name)}
    read = list(_reads(method, held, scope))
    names = [node for node in walk_tree(method) if isinstance(node, ast.Name)]
    uses = [node for node in names if isinstance(node.ctx, ast.Load) and node.id in held]
    fields = sorted({found.attr for found in read})
    if not read or len(read) != len(uses) + len(calls) - len(bound) or any(f.startswith(_OF_GROUPS) for f in fields):
        return None
    taken = {node.id for node in names} - held | {
        node.arg for node in walk_tree(method.args) if isinstance(node, ast.arg)
    }
    asked = calls[0]
    assert isinstance(asked, ast.Call)
    assert isinstance(asked.func, ast.Name)
    origin = scope.origin(asked.func.id)
    module = origin.module if isinstance(origin, Defined) else origin.path.rpartition(".")[0] if origin else ""
    return ContextArguments({name: f"context_{name}" if name in taken else name for name in fields}, module)


def read_elsewhere(method: ast.FunctionDef, scope: Scope) -> Iterator[tuple[str, int]]:
    """Yield attribute and line of what a method reads from the context, but for what it says about groups."""
    bound = [node for node in walk_tree(method) if isinstance(node, ast.Assign) and _is_call(_bare(node.value), scope)]
    held = {node.targets[0].id for node in bound if isinstance(node.targets[0], ast.Name)}
    for found in _reads(method, held, scope):
        if not found.attr.startswith(_OF_GROUPS):
            yield found.attr, found.lineno


def _bare(node: ast.expr) -> ast.expr:
    return node.body if isinstance(node, ast.IfExp) else node


def _is_call(node: object, scope: Scope) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    origin = scope.origin(node.func.id)
    if isinstance(origin, Defined):
        return origin.name == _CONTEXT
    return origin is not None and origin.path.rpartition(".")[2] == _CONTEXT


def _reads(method: ast.FunctionDef, held: set[str], scope: Scope) -> Iterator[ast.Attribute]:
    for found in walk_tree(method):
        if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Load):
            if _is_call(found.value, scope) or (isinstance(found.value, ast.Name) and found.value.id in held):
                yield found
