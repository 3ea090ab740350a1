"""Modules that a text holds and asks for nowhere: no call reaches them, so LoRA there would do nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.source.syntax import is_own, lineage, walk_tree

_LOADER = "load_weights"
# Ways to all modules at once: whoever goes one may call any of them.
_ALL = frozenset({"children", "modules", "named_children", "named_modules", "_modules", "__dict__", "get_submodule"})


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
            reads = list(_reads(node))
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


def _reads(tree: ast.stmt) -> Iterator[tuple[str, bool]]:
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
