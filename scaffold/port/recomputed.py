"""Gradient checkpointing: classes of layers that loops call, so that what they compute can be computed again."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping

from scaffold.port.layer_lists import layer_lists
from scaffold.port.unset_arguments import unset_arguments
from scaffold.source.syntax import walk_tree

# What a layer adds to while it runs must not be given to it twice.
GROWS = ("past_key_value", "cache_params")


def recomputed(tree: ast.Module) -> tuple[str, ...]:
    """Return the classes whose instances a loop over a list of modules calls, in the order of the text.

    A loop in which a layer is handed a cache that it adds to does not count, unless there never is one.
    """
    lists, nothing = layer_lists(tree), unset_arguments(tree)
    methods = (method for kind in tree.body if isinstance(kind, ast.ClassDef) for method in kind.body)
    found: dict[str, None] = {}
    for method in methods:
        if isinstance(method, ast.FunctionDef):
            for attribute in _called(method, lists, nothing):
                found.update(dict.fromkeys(lists[attribute]))
    return tuple(found)


def _called(method: ast.FunctionDef, lists: Mapping[str, object], nothing: Container[str]) -> Iterator[str]:
    """Yield the lists whose layers a loop of a method calls."""
    for loop in (node for node in walk_tree(method) if isinstance(node, ast.For)):
        pair = _variable(loop.target, loop.iter)
        if pair is None or pair[1] not in lists:
            continue
        calls = [node for node in walk_tree(loop) if isinstance(node, ast.Call) and ast.unparse(node.func) == pair[0]]
        if calls and not any(_grows(call, nothing) for call in calls):
            yield pair[1]


def _grows(call: ast.Call, nothing: Container[str]) -> bool:
    named = (keyword for keyword in call.keywords if keyword.arg not in nothing)
    given = [*map(ast.unparse, call.args), *(f"{keyword.arg} {ast.unparse(keyword.value)}" for keyword in named)]
    return any(part in text for part in GROWS for text in given)


def _variable(target: ast.expr, given: ast.expr) -> tuple[str, str] | None:
    """The variable and the attribute of ``for x in self.xs``, of a slice, and of ``for i, x in enumerate(self.xs)``."""
    if isinstance(given, ast.Call) and ast.unparse(given.func) in ("enumerate", "zip") and given.args:
        if not isinstance(target, ast.Tuple) or len(target.elts) < 2:
            return None
        if ast.unparse(given.func) == "enumerate":
            return _variable(target.elts[1], given.args[0])
        pairs = (_variable(part, value) for part, value in zip(target.elts, given.args, strict=False))
        return next((pair for pair in pairs if pair is not None), None)
    if isinstance(given, ast.Subscript):
        given = given.value
    if isinstance(target, ast.Name) and isinstance(given, ast.Attribute):
        return target.id, given.attr
    return None
