"""What a function's text says about itself, read with ``ast``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from scaffold.source.syntax import walk_tree

# What runs in inference alone, by the name of the library that a function of it speaks of.
TRITON, NPU, GRAPHS = "Triton kernels", "kernels of NPUs", "CUDA graphs"
# By a part of the module that they are imported from.
_LIBRARIES = {"triton": TRITON, "triton_utils": TRITON, "torch_npu": NPU}
_CAPTURES = frozenset({"CUDAGraph", "graph"})


def changes_in_place(node: ast.With) -> bool:
    """Tell whether a block changes tensors in place: parameters take that without gradients only."""
    return any(_is_in_place(found) for found in walk_tree(node))


def _is_in_place(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell whether this is ``x.add_(y)``."""
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name.endswith("_") and not name.endswith("__")


# What a context of the engine's says about groups of devices; one device needs none of it.
OF_GROUPS = ("sp_", "omni_diffusion_config", "ulysses", "ring")


def reads_groups_only(node: ast.AST) -> bool:
    """Tell whether a function asks the engine's context of a forward pass about groups of devices, and nothing else."""
    held = {
        target.id
        for found in walk_tree(node)
        if isinstance(found, ast.Assign)
        and _is_context(found.value.body if isinstance(found.value, ast.IfExp) else found.value)
        for target in found.targets
        if isinstance(target, ast.Name)
    }
    used = [
        found
        for found in walk_tree(node)
        if isinstance(found, ast.Attribute)
        and (_is_context(found.value) or (isinstance(found.value, ast.Name) and found.value.id in held))
    ]
    read = [found.attr for found in used if isinstance(found.ctx, ast.Load)]
    return bool(used) and all(name.startswith(OF_GROUPS) for name in read)


def _is_context(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_forward_context"


def bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the local names that statements bind, those of functions inside of them left out."""
    found: set[str] = set()
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            pending.extend(ast.iter_child_nodes(node))
    return found


def returned_names(node: ast.AST) -> set[str]:
    """Return the local names that a function returns as they are."""
    return {
        found.value.id
        for found in walk_tree(node)
        if isinstance(found, ast.Return) and isinstance(found.value, ast.Name)
    }


def changed_tensor(node: ast.stmt) -> str | None:
    """Return the name that ``x.add_(y)`` or ``x[…].add_(y)`` as a statement changes."""
    func = node.value.func if isinstance(node, ast.Expr) and _is_in_place(node.value) else None
    if not isinstance(func, ast.Attribute):
        return None
    target = func.value.value if isinstance(func.value, ast.Subscript) else func.value
    return target.id if isinstance(target, ast.Name) else None


def inference_kind(tree: ast.Module, line: int) -> str | None:
    """Return what the code at a line is for, where that is inference alone.

    A function is where it names a library of kernels; a module without layers is where it captures CUDA graphs.
    """
    libraries = _libraries(tree)
    for function in _around(tree, line):
        names = (node.id for node in walk_tree(function) if isinstance(node, ast.Name))
        kind = next((libraries[name] for name in names if name in libraries), None)
        if kind is not None:
            return kind
    return GRAPHS if _captures(tree) and not _has_layers(tree) else None


def _libraries(tree: ast.Module) -> dict[str, str]:
    """Names that imports bind to libraries of kernels, and of which kind each is."""
    found: dict[str, str] = {}
    for node in walk_tree(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                module = alias.name if isinstance(node, ast.Import) else node.module or ""
                kind = next((kind for part, kind in _LIBRARIES.items() if part in module.split(".")), None)
                if kind is not None:
                    found[alias.asname or alias.name.partition(".")[0]] = kind
    return found


def _around(tree: ast.Module, line: int) -> Iterable[ast.AST]:
    return [
        node
        for node in walk_tree(tree)
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
        for node in walk_tree(tree)
    )


def _has_layers(tree: ast.Module) -> bool:
    classes = [node for node in walk_tree(tree) if isinstance(node, ast.ClassDef)]
    return any(ast.unparse(base).rpartition(".")[2] == "Module" for node in classes for base in node.bases)
