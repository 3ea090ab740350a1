"""Arguments that a text hands on by their names and that never have a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.source.syntax import walk_tree

_VALUE = ""  # in place of the name that an argument is given, where it is given something else


def unset_arguments(tree: ast.Module) -> frozenset[str]:
    """Return the keywords that are ``None`` wherever the text gives them, or an argument that is itself never given.

    Arguments of constructors are fields of what they make, not arguments of a call that computes.
    """
    given: dict[str, set[str | None]] = {}
    for name, value in _given(tree):
        given.setdefault(name, set()).add(value)
    found = set(given)
    while True:
        left = {name for name in found if all(value is None or value in found for value in given[name])}
        if left == found:
            break
        found = left
    nothing = {name for name in found if None in given[name]}
    while more := {name for name in found - nothing if given[name] & nothing}:
        nothing |= more
    return frozenset(nothing)


def _given(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Yield keyword and what it is given: None, the name of an argument, or ``_VALUE``."""
    for function in walk_tree(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        stored = {n.id for n in walk_tree(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in walk_tree(function):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2][:1].isupper():
                continue
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg is None:
                    continue
                if isinstance(value, ast.Constant):
                    yield keyword.arg, None if value.value is None else _VALUE
                else:
                    plain = isinstance(value, ast.Name) and value.id not in stored
                    yield keyword.arg, value.id if plain and isinstance(value, ast.Name) else _VALUE
