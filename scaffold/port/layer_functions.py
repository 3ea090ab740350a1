"""Functions that compute one layer of a list, of which they are told the number, and leave everything as it was."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from scaffold.source.syntax import walk_tree

# What a layer adds to while it runs must not be given to it twice.
GROWS = ("past_key_value", "cache_params")
_CHANGING = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "write"})


@dataclass(frozen=True)
class LayerFunction:
    """A function that computes one layer.

    Attributes:
        parameters: names of its parameters.
        number: the one that is the layer's number.
        holder: the one whose ``path`` is the list of the layers, such as ``model.layers``; both empty where more
            than plain attributes leads to it.
        path: attributes from ``holder`` to the list.
    """

    parameters: tuple[str, ...]
    number: str
    holder: str = ""
    path: str = ""


def layer_functions(tree: ast.Module) -> dict[str, LayerFunction]:
    """Return such functions of a module by name."""
    found = {}
    own = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not (node.args.vararg or node.args.kwarg):
            layer = _layer(node)
            if layer is not None and _is_pure(node, own, frozenset()):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                names = tuple(argument.arg for argument in arguments)
                number, layers = layer
                holder, path = _held(node, layers, names)
                found[node.name] = LayerFunction(names, number, holder, path)
    return found


def _held(function: ast.FunctionDef, layers: str, parameters: tuple[str, ...]) -> tuple[str, str]:
    """Return the parameter that holds a list of layers, and the attributes that lead to it."""
    holder, _, path = layers.partition(".")
    given = [
        node.value
        for node in function.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == holder for target in node.targets)
    ]
    names = [node for node in walk_tree(function) if isinstance(node, ast.Name)]
    stored = sum(name.id == holder and isinstance(name.ctx, ast.Store) for name in names)
    if len(given) == stored == 1 and _root(given[0]) is not None:  # model = decoder.model
        holder, _, front = ast.unparse(given[0]).partition(".")
        path, stored = f"{front}.{path}", 0
    return (holder, path) if holder in parameters and not stored else ("", "")


def _layer(function: ast.FunctionDef) -> tuple[str, str] | None:
    """Return ``i`` and ``model.layers`` of ``layer = model.layers[i]``, where the function calls the layer's modules.

    The number is a parameter of the function.
    """
    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    called = {_root(node.func) for node in walk_tree(function) if isinstance(node, ast.Call)}
    for node in walk_tree(function):
        value = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute):
            assert isinstance(node, ast.Assign)
            target, index = node.targets[0], value.slice
            if isinstance(target, ast.Name) and isinstance(index, ast.Name) and target.id in called:
                if index.id in parameters and _root(value.value) is not None:
                    return index.id, ast.unparse(value.value)
    return None


def _root(node: ast.expr) -> str | None:
    """Return ``x`` of ``x.a.b``."""
    if not isinstance(node, ast.Attribute):
        return None
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_pure(function: ast.FunctionDef, own: dict[str, ast.FunctionDef], callers: frozenset[str]) -> bool:
    """Tell whether a second run gives the same: nothing outside of the names of functions of the text is changed."""
    for node in walk_tree(function):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)):
            return False
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            return False
        if isinstance(node, ast.AugAssign) and not isinstance(node.value, ast.Constant):
            return False  # of a tensor that somebody else has, too
        if isinstance(node, ast.Call):
            inner = own.get(node.func.id) if isinstance(node.func, ast.Name) else None
            if not _leaves(node):
                return False
            if inner is not None and inner.name not in callers and not _is_pure(inner, own, callers | {function.name}):
                return False
    return True


def _leaves(call: ast.Call) -> bool:
    """Tell whether a call leaves what it is given as it is, as far as its name and arguments say."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in _CHANGING or (name.endswith("_") and not name.endswith("__")):
        return False
    given = [ast.unparse(argument) for argument in call.args] + [str(keyword.arg) for keyword in call.keywords]
    return not any(part in text for part in GROWS for text in given)
