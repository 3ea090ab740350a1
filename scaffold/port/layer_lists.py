"""The lists of modules that a text makes of its own classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.source.syntax import walk_tree

# What a function of the engine's that makes layers by number is called in a closure.
MADE = "all_layers"


def layer_lists(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """Return the classes of a text that it puts into lists of modules, by the list's attribute."""
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, dict[str, None]] = {}
    for function in (node for node in walk_tree(tree) if isinstance(node, ast.FunctionDef)):
        for statement in walk_tree(function):
            if not isinstance(statement, ast.Assign):
                continue
            made = made_by_number(statement.value)
            if made is not None:
                whole = statement.targets[0]
                last = whole.elts[-1] if isinstance(whole, ast.Tuple) else whole
                if isinstance(last, ast.Attribute):
                    found.setdefault(last.attr, {}).update(dict.fromkeys(_made(made, own)))
                continue
            if not _is_module_list(statement.value):
                continue
            assert isinstance(statement.value, ast.Call)
            for target in statement.targets:
                if isinstance(target, ast.Attribute):
                    for name in _elements(function, statement.value.args, own):
                        found.setdefault(target.attr, {})[name] = None
    inside = _inside(tree, own, {name for names in found.values() for name in names})
    outer = {attribute: tuple(name for name in names if name not in inside) for attribute, names in found.items()}
    return {attribute: names for attribute, names in outer.items() if names}


def _inside(tree: ast.Module, own: set[str], layers: set[str]) -> set[str]:
    """Return the classes that layers are made of: those are computed again with the layer around them."""
    makes = {
        node.name: {inner.func.id for inner in walk_tree(node) if isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Name) and inner.func.id in own}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    found: set[str] = set()
    pending = list(layers)
    while pending:
        for name in makes[pending.pop()] - found:
            found.add(name)
            pending.append(name)
    return found


def outermost(tree: ast.Module, owners: set[str]) -> set[str]:
    """Return the classes of ``owners`` that inherit from no other of them."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)
    }

    def inherits(name: str) -> bool:
        return any(base in owners or inherits(base) for base in bases.get(name, ()))

    return {name for name in owners if not inherits(name)}


def made_by_number(node: ast.AST) -> ast.expr | None:
    """Return ``Layer(…)`` of ``all_layers(count, lambda prefix: Layer(…))``, a list; None for anything else."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == MADE and len(node.args) == 2:
        make = node.args[1]
        return make.body if isinstance(make, ast.Lambda) else None
    return None


def _is_module_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "ModuleList"


def _elements(function: ast.FunctionDef, given: list[ast.expr], own: set[str]) -> Iterator[str]:
    """Yield the classes of the text that a list is made of, where it is given as a local name too."""
    for node in given:
        if isinstance(node, ast.Name):
            for inner in walk_tree(function):
                if isinstance(inner, (ast.Assign, ast.AugAssign)):
                    target = inner.targets[0] if isinstance(inner, ast.Assign) else inner.target
                    yield from _made(inner.value, own) if ast.unparse(target) == node.id else ()
                elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == f"{node.id}.append":
                    yield from _made(inner.args[0], own)
        else:
            yield from _made(node, own)


def _made(node: ast.expr, own: set[str]) -> Iterator[str]:
    """Yield the classes whose instances a list holds; arguments of constructors are not looked into."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in own:
            yield node.func.id
    elif isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            yield from _made(element, own)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from _made(node.elt, own)
    elif isinstance(node, ast.IfExp):
        yield from _made(node.body, own)
        yield from _made(node.orelse, own)
