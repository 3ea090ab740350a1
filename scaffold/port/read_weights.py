"""Linear layers that a module computes with by their weight, without a call: LoRA on them would do nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.source.syntax import walk_tree

Path = tuple[str, ...]
# What is asked of a weight without its values.
_ABOUT = frozenset({"dtype", "device", "shape", "ndim", "is_meta", "size", "numel", "requires_grad"})


class _Read(NamedTuple):
    """The weight of what lies at ``path`` inside of what a name holds."""

    root: str
    path: Path


def read_weights(tree: ast.Module) -> dict[str, set[Path]]:
    """Return, by class, the paths of the layers inside of it whose weights its methods read.

    A function of the module that reads the weight of what it is given counts for whoever calls it.

    Args:
        tree: the module.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    known: dict[str, set[_Read]] = {name: set() for name in functions}
    while True:
        found = {name: set(_reads(node, functions, known)) for name, node in functions.items()}
        if found == known:
            break
        known = found
    return {
        node.name: {read.path for read in _reads(node, functions, known) if read.root == "self" and read.path}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _reads(owner: ast.AST, functions: dict[str, ast.FunctionDef], known: dict[str, set[_Read]]) -> Iterator[_Read]:
    asked = {id(node.value) for node in walk_tree(owner) if isinstance(node, ast.Attribute) and node.attr in _ABOUT}
    for node in walk_tree(owner):
        if isinstance(node, ast.Attribute) and node.attr == "weight" and id(node) not in asked:
            if isinstance(node.ctx, ast.Load) and (held := _place(node.value)) is not None:
                yield held
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            names = [argument.arg for argument in functions[node.func.id].args.args]
            given = dict(zip(names, node.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
            for read in known[node.func.id]:
                held = _place(given[read.root]) if read.root in given else None
                if held is not None:
                    yield _Read(held.root, (*held.path, *read.path))


def _place(node: ast.expr) -> _Read | None:
    """``a.b[1]`` as a name and a path; None for anything else."""
    path: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            path.insert(0, str(node.slice.value))
        else:
            return None
        node = node.value
    return _Read(node.id, tuple(path))
