"""The text of our own plain layers, read and never imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from scaffold.files.reading import read_text
from scaffold.source.syntax import walk_tree

FOLDER = Path(__file__).parent / "support"


@cache
def support_names() -> frozenset[str]:
    """Return the names of all classes and functions there."""
    return frozenset(name for path in FOLDER.glob("*.py") for name in _definitions(path.stem))


def support_text(module: str, names: set[str]) -> str:
    """Return the definitions of one module that are asked for, and those of it that they use."""
    found = _definitions(module)
    wanted, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name in found and name not in wanted:
            wanted.add(name)
            pending += [node.id for node in walk_tree(ast.parse(found[name])) if isinstance(node, ast.Name)]
    return "\n\n\n".join(text for name, text in found.items() if name in wanted)


@cache
def _definitions(module: str) -> dict[str, str]:
    text = read_text(FOLDER / f"{module}.py")
    lines = text.splitlines()
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found
