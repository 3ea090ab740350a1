"""Functions that change no more of a module than the dtypes and places of its tensors."""

from __future__ import annotations

import ast
import builtins

from scaffold.port.names import Defined, Scope
from scaffold.source.syntax import walk_tree

_WALKS = ("parameters", "buffers", "modules", "children")
_READS = (*_WALKS, *(f"named_{name}" for name in _WALKS), "is_floating_point", "is_complex", "startswith", "endswith")
_MOVES = ("to", "float", "half", "bfloat16", "cpu", "cuda", "contiguous", "eval")
_DEPTH = 4


def casts_only(scope: Scope, call: ast.expr, depth: int = 0) -> bool:
    """Tell whether a function of the source that is handed a module casts its tensors, and does nothing else to it.

    Args:
        scope: names where the call stands.
        call: the call.
        depth: how many functions lead to it.
    """
    func = call.func if isinstance(call, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr in _MOVES
    origin = scope.origin(func.id) if isinstance(func, ast.Name) else None
    info = scope.graph.find(origin.module) if isinstance(origin, Defined) else None
    function = info.definitions.get(origin.name) if info is not None and isinstance(origin, Defined) else None
    if info is None or not isinstance(function, ast.FunctionDef) or depth > _DEPTH:
        return False
    inside = Scope.of(scope.graph, info, function)
    for node in walk_tree(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if not isinstance(target, ast.Name) and not _is_cast(target, node.value):
                    return False
        elif isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Constant, ast.Call)):
            return False
        elif isinstance(node, ast.Call):
            if not _is_read(inside, node) and not casts_only(inside, node, depth + 1):
                return False
        elif isinstance(node, (ast.Delete, ast.Global, ast.Nonlocal, ast.With, ast.Yield, ast.NamedExpr)):
            return False
    return True


def _is_read(scope: Scope, call: ast.Call) -> bool:
    """Tell whether a call is one of a module's questions, or of Python's own functions."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _READS
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    own = name in scope.hidden or scope.origin(name) is not None
    return not own and hasattr(builtins, name) and name not in ("setattr", "delattr", "exec", "eval")


def _is_cast(target: ast.expr, value: ast.expr | None) -> bool:
    """Tell whether this is ``x.data = x.data.to(dtype=…)``."""
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "data"
        and isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _MOVES
        and ast.unparse(value.func.value) == ast.unparse(target)
    )
