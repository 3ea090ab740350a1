"""Code that runs in inference alone: a kernel, a captured graph. Nobody has to port it for training."""

from __future__ import annotations

import ast
from collections.abc import Iterable

TRITON, NPU, GRAPHS = "Triton kernels", "kernels of NPUs", "CUDA graphs"
_NAMES = {"triton": TRITON, "tl": TRITON, "torch_npu": NPU}
_CAPTURES = frozenset({"CUDAGraph", "graph"})


def kind_of(tree: ast.Module, line: int) -> str | None:
    """Return what the code at a line is for, where that is inference alone.

    A function is where it names a library of kernels; a module without layers is where it captures CUDA graphs.
    """
    for function in _around(tree, line):
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        kinds = [kind for name, kind in _NAMES.items() if name in names]
        if kinds:
            return kinds[0]
    return GRAPHS if _captures(tree) and not _has_layers(tree) else None


def _around(tree: ast.Module, line: int) -> Iterable[ast.AST]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and min([node.lineno, *(part.lineno for part in node.decorator_list)]) <= line <= (node.end_lineno or 0)
    ]


def _captures(tree: ast.Module) -> bool:
    """Whether it calls ``torch.cuda.graph`` or makes a ``torch.cuda.CUDAGraph``."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CAPTURES
        and ast.unparse(node.func.value).endswith("cuda")
        for node in ast.walk(tree)
    )


def _has_layers(tree: ast.Module) -> bool:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return any(ast.unparse(base).rpartition(".")[2] == "Module" for node in classes for base in node.bases)
