"""Functions that compute one layer of a list, of which they are told the number, and leave everything as it was."""

from __future__ import annotations

import ast

# What a layer adds to while it runs must not be given to it twice.
GROWS = ("past_key_value", "cache_params")
_CHANGING = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "write"})


def layer_functions(tree: ast.Module) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return such functions of a module: the names of their parameters, and the one that is the layer's number."""
    found = {}
    own = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not (node.args.vararg or node.args.kwarg):
            number = _number(node)
            if number is not None and _is_pure(node, own, frozenset()):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                found[node.name] = tuple(argument.arg for argument in arguments), number
    return found


def _number(function: ast.FunctionDef) -> str | None:
    """Return the parameter ``i`` of ``layer = model.layers[i]``, where the function calls modules of the layer."""
    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    called = {_root(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        value = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute):
            assert isinstance(node, ast.Assign)
            target, index = node.targets[0], value.slice
            if isinstance(target, ast.Name) and isinstance(index, ast.Name) and target.id in called:
                if index.id in parameters and _root(value.value) is not None:
                    return index.id
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
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await | ast.Delete):
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
