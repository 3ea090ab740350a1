"""Which functions of a pipeline's folder its own methods lead to, as far as names tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_ON_USE = ("__init__", "__call__", "forward")
"""Methods that run where a class is instantiated and its object called."""


def reached_functions(trees: list[ast.Module], cls: str, pipelines: set[str]) -> set[int]:
    """The ``id`` of each function that a method of the class called ``cls`` may lead to.

    A name leads to every function, method and class of that name; a class only named to take a method from it leads
    to none of the others. No pipeline calls the forward of another, of those called ``pipelines``, by its bare name.
    """
    functions: dict[str, list[FunctionNode]] = {}
    classes: dict[str, list[ast.ClassDef]] = {}
    apart = pipelines - {cls}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, FunctionNode):
                functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
                for inner in _methods(node):
                    if node.name not in apart or inner.name not in _ON_USE:
                        functions.setdefault(inner.name, []).append(inner)
    reached: set[int] = set()
    pending = [m for name in _lineage(classes, cls) for node in classes[name] for m in _methods(node)]
    pending = pending if cls in classes else [f for named in functions.values() for f in named]
    while pending:
        function = pending.pop()
        if id(function) in reached:
            continue
        reached.add(id(function))
        for name in _names(function):
            pending += functions.get(name, ())
            for node in classes.get(name, ()):
                pending += [m for m in _methods(node) if m.name in _ON_USE]
    return reached


def _lineage(classes: dict[str, list[ast.ClassDef]], cls: str) -> list[str]:
    """A class and its bases in the folder."""
    found: list[str] = []
    pending = [cls]
    while pending:
        name = pending.pop()
        if name in classes and name not in found:
            found.append(name)
            bases = [base for node in classes[name] for base in node.bases]
            pending += [base.id for base in bases if isinstance(base, ast.Name)]
    return found


def _methods(node: ast.ClassDef) -> list[FunctionNode]:
    return [inner for inner in node.body if isinstance(inner, FunctionNode)]


def _names(function: FunctionNode) -> Iterator[str]:
    """What a function speaks of: variables, attributes, and texts that may be names of either."""
    bases = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Attribute)}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and id(node) not in bases:
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
