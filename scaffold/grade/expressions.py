"""Expressions that a spec may bring into a rendered package: arithmetic over a few names and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable

NAMES = frozenset({"num_inference_steps", "latent_size", "model_path", "scheduler", "step", "np", "torch", "math"})
CALLS = frozenset({"setting", "max", "min", "round", "abs"})
ATTRIBUTES = frozenset(
    {"linspace", "sqrt", "exp", "log", "cos", "sin", "flip", "pi", "float32", "float64", "config", "get", "sigmas",
     "timesteps"}
)  # fmt: skip
PREDICTED = frozenset({"conditional", "unconditional"})
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call, ast.keyword, ast.Subscript, ast.Slice,
    ast.List, ast.Load,
)  # fmt: skip


def is_plain(text: object) -> bool:
    """Tell whether a text is an expression that only computes numbers from what rendered code has."""
    return _holds_only(text, _allowed)


def is_guidance(text: object, settings: set[object]) -> bool:
    """Tell whether a text only combines predictions, with norms and with settings of those names."""
    return _holds_only(text, lambda node: _combines(node, settings))


def _holds_only(text: object, allowed: Callable[[ast.AST], bool]) -> bool:
    if not isinstance(text, str):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(allowed(node) for node in ast.walk(tree))


def _combines(node: ast.AST, settings: set[object]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in PREDICTED | {"guidance", "torch", "abs", "tuple", "range", "len"}
    if isinstance(node, ast.Attribute):
        return node.attr in {"lerp", "linalg", "vector_norm", "std", "ndim"}
    if isinstance(node, ast.Subscript):
        if not (isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant)):
            return False
        return isinstance(node.slice.value, int) if node.value.id == "unconditional" else node.slice.value in settings
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str)
    return isinstance(node, (*_NODES, ast.IfExp, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Tuple))


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in NAMES | CALLS
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str | None)
    return isinstance(node, _NODES)
