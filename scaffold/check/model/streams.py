"""Names inside the forward code: what is derived from what, and where an expression begins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from scaffold.check.model.functions import FunctionModel

# Reading these tells something about a tensor, it does not hand its values on.
ABOUT = {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "stride", "is_cuda", "requires_grad"}


def derived(function: FunctionModel, start: Iterable[str], flows: Callable[[ast.expr, set[str]], bool]) -> set[str]:
    """Return the names of a function whose values come from some of its names.

    Args:
        function: the function.
        start: names to begin with.
        flows: whether the values of names reach the value of an expression.
    """
    found = set(start)
    pairs = function.assignments
    growing = True
    while growing:
        growing = False
        for name, value in pairs:
            if name not in found and flows(value, found):
                found.add(name)
                growing = True
    return found


def reads(node: ast.AST, names: set[str], stop: Callable[[ast.AST], bool] = lambda node: False) -> bool:
    """Whether an expression reads a name (or ``.attribute``) for its values, not only for its shape or dtype."""
    if stop(node):
        return False
    if isinstance(node, ast.Attribute):
        if node.attr in ABOUT:
            return False
        if f".{node.attr}" in names:
            return True
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Lambda):
        return False
    return any(reads(child, names, stop) for child in ast.iter_child_nodes(node))


def root_name(node: ast.expr) -> str | None:
    """Return the name that an expression begins with: ``x`` in ``norm(proj(x)).unflatten(-1, s)[0]``."""
    for _ in range(50):
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Attribute)):
            node = node.value
        elif isinstance(node, ast.Call):
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
            of_self = receiver is not None and _is_self(receiver)
            if (
                receiver is not None
                and not of_self
                and not (isinstance(receiver, ast.Name) and receiver.id in _MODULES)
            ):
                node = receiver
            elif node.args:
                node = node.args[0]
            else:
                return None
        else:
            return None
    return None


_MODULES = {"torch", "F", "nn", "math", "np"}


def _is_self(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"
