"""The lists of modules that a text makes of its own classes."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping

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


# Gradient checkpointing: classes of layers that loops call, so that what they compute can be computed again.

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


# Arguments that a text hands on by their names and that never have a value.

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
