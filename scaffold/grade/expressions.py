"""Expressions that a spec may bring into a rendered package: arithmetic over a few names and nothing else."""

from __future__ import annotations

import ast

NAMES = frozenset({"num_inference_steps", "latent_size", "model_path", "scheduler", "step", "np", "torch", "math"})
CALLS = frozenset({"setting", "max", "min", "round", "abs"})
ATTRIBUTES = frozenset(
    {"linspace", "sqrt", "exp", "log", "cos", "sin", "flip", "pi", "float32", "float64", "config", "get", "sigmas",
     "timesteps"}
)  # fmt: skip
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call, ast.keyword, ast.Subscript, ast.Slice,
    ast.List, ast.Load,
)  # fmt: skip


def is_plain(text: object) -> bool:
    """Tell whether a text is an expression that only computes numbers from what rendered code has."""
    if not isinstance(text, str):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_allowed(node) for node in ast.walk(tree))


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in NAMES | CALLS
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str | None)
    return isinstance(node, _NODES)
