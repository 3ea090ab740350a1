"""Linear layers on which LoRA would do nothing: a module computes with their weight, or asks for them nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.source.syntax import is_own, lineage, walk_tree

Path = tuple[str, ...]
# What is asked of a weight without its values.
_ABOUT = frozenset({"dtype", "device", "shape", "ndim", "is_meta", "size", "numel", "requires_grad"})

_LOADER = "load_weights"
# Ways to all modules at once: whoever goes one may call any of them.
_ALL = frozenset({"children", "modules", "named_children", "named_modules", "_modules", "__dict__", "get_submodule"})


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


class Reached:
    """Which attributes of its classes a module's text reads.

    Args:
        tree: the module, of which every method can be called.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._classes = {node.name: node for node in walk_tree(tree) if isinstance(node, ast.ClassDef)}
        self._imported = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        # Where a person still has to write something, that may ask for anything.
        self._left = any(_is_left(inner) for node in tree.body for inner in walk_tree(node))
        self._own: dict[str, set[str]] = {}
        self._anywhere: set[str] = set()
        for node in tree.body:
            reads = list(_asked(node))
            self._own[getattr(node, "name", "")] = {name for name, own in reads if own}
            self._anywhere |= {name for name, own in reads if not own or not isinstance(node, ast.ClassDef)}

    def has(self, owner: str, attribute: str) -> bool:
        """Tell whether an attribute of a class may be read: by the class, by one above or below it, or from outside.

        A class that derives from a library's may be read there; of one that is only built nothing is known.
        """
        above = lineage(self._classes, owner)
        silent = not any(
            isinstance(inner, ast.FunctionDef) and inner.name != "__init__" for c in above for inner in c.body
        )
        if self._left or silent or attribute in self._anywhere or any(self._foreign(node) for node in above):
            return True
        family = {node.name for node in above}
        family |= {name for name in self._classes if owner in {node.name for node in lineage(self._classes, name)}}
        return any({attribute, *_ALL} & self._own.get(name, set()) for name in family)

    def _foreign(self, node: ast.ClassDef) -> bool:
        return any(isinstance(base, ast.Name) and base.id in self._imported for base in node.bases)


def _is_left(node: ast.AST) -> bool:
    """Tell whether this is the statement in place of one that has no counterpart."""
    call = node.exc if isinstance(node, ast.Raise) else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return isinstance(given, ast.Constant) and ast.unparse(call.func) == "NotImplementedError"  # type: ignore[union-attr]


def _asked(tree: ast.stmt) -> Iterator[tuple[str, bool]]:
    """Yield the names of attributes that are read, and whether of ``self``; a text may be the name of one, too."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and node.name == _LOADER:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, is_own(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, False
        pending += ast.iter_child_nodes(node)
