"""Parameters and buffers that the loading code of a package fills itself, beside what the key table maps."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import folded, loading_functions
from scaffold.check.model.package import Package

_STORING = ("update", "setdefault", "__setitem__")
_FILLING = {
    *("reset_parameters", "init_weights", "_init_weights", "load_state_dict", "apply"),
    *("copy_", "fill_", "zero_", "normal_", "uniform_", "data"),
}


def filled_by_code(package: Package) -> Callable[[str], bool]:
    """Return a test of folded names: whether the functions that load weights put something there by that name."""
    exact: set[str] = set()
    below: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for function in loading_functions(package):
        if function.file not in package.files:
            continue
        for key in _keys(function):
            value = function.file.value(key)
            if isinstance(value, str):
                exact.add(folded(value))
            elif isinstance(made := follow(function.file, key), ast.JoinedStr):
                texts = [p.value if isinstance(p, ast.Constant) else None for p in made.values]
                if any(texts):
                    patterns.append(re.compile("".join(".+" if t is None else re.escape(str(t)) for t in texts)))
        for name, whole in _touched(function):
            exact.add(name)
            if whole:
                below.add(f"{name}.")

    def test(name: str) -> bool:
        return (
            name in exact
            or any(name.startswith(start) for start in below)
            or any(pattern.fullmatch(name) for pattern in patterns)
        )

    return test


def _keys(function: FunctionModel) -> Iterator[ast.expr]:
    """Yield the keys under which a function stores something in a dictionary."""
    index = function.file.index
    for node in index.nodes(ast.Subscript, function.node):
        if isinstance(node.ctx, ast.Store):
            yield node.slice
    for table in index.nodes(ast.Dict, function.node):
        yield from (key for key in table.keys if key is not None)
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _STORING:
            yield from (ast.Constant(item.arg) for item in call.keywords if item.arg is not None)
            yield from call.args[:1]


def _touched(function: FunctionModel) -> Iterator[tuple[str, bool]]:
    """Yield dotted names below an object, ``head.weight`` of ``model.head.weight``, and whether all below them is."""
    index = function.file.index
    for node in index.nodes(ast.Attribute, function.node):
        around = index.parent(node)
        if isinstance(around, ast.Attribute):
            continue
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id == function.bound:
            continue
        called = isinstance(around, ast.Call) and around.func is node
        if parts[-1] in _FILLING and (called or parts[-1] == "data"):
            yield ".".join(parts[:-1]), True
        elif not called:
            yield ".".join(parts), isinstance(around, ast.Call)
