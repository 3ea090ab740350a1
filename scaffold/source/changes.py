"""What differs between two texts of a module, by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def changed_definitions(before: ast.Module, after: ast.Module) -> tuple[str, ...]:
    """Return the functions, classes, methods and globals that changed, are new or are gone; comments do not count."""
    old, new = dict(_named(before)), dict(_named(after))
    return tuple(name for name in {**old, **new} if old.get(name) != new.get(name))


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the definitions of a module, methods by the class before them, each with what it says."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            rest = [part for part in node.body if part not in methods]
            yield node.name, "\n".join(map(ast.dump, [*node.bases, *node.decorator_list, *rest]))
            yield from ((f"{node.name}.{part.name}", ast.dump(part)) for part in methods)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, ast.dump(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield ", ".join(map(ast.unparse, targets)), ast.dump(node)
