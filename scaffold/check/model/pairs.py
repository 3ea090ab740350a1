"""The two dictionaries that a method returns, written as a tuple or picked out of a dictionary of branches."""

from __future__ import annotations

import ast

from scaffold.check.model.follow import follow
from scaffold.check.model.pyfile import PythonFile


def written_pair(file: PythonFile, value: ast.expr) -> list[ast.expr] | None:
    """Return the two expressions of a pair in their order; None where it is none, or not plain.

    ``a, b``, ``branches["a"], branches["b"]``, ``tuple(branches.values())``,
    ``tuple(branches[name] for name in sorted(branches))``.
    """
    if isinstance(value, ast.Tuple) and len(value.elts) == 2:
        return [_entry(file, item) for item in value.elts]
    if not isinstance(value, ast.Call) or file.qualified(value.func) not in ("tuple", "list") or len(value.args) != 1:
        return None
    made = value.args[0]
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "values":
        entries = _entries(file, made.func.value)
        return list(entries.values()) if entries is not None and len(entries) == 2 else None
    if not isinstance(made, (ast.GeneratorExp, ast.ListComp)) or len(made.generators) != 1 or made.generators[0].ifs:
        return None
    loop, picked = made.generators[0], made.elt
    if not (
        isinstance(picked, ast.Subscript) and isinstance(picked.slice, ast.Name) and isinstance(loop.target, ast.Name)
    ):
        return None
    entries = _entries(file, picked.value)
    names = _order(file, loop.iter, picked.value) if picked.slice.id == loop.target.id else None
    if entries is None or names is None or len(names) != 2 or not set(names) <= entries.keys():
        return None
    return [entries[name] for name in names]


def _entry(file: PythonFile, item: ast.expr) -> ast.expr:
    if isinstance(item, ast.Subscript):
        entries = _entries(file, item.value)
        key = file.value(item.slice)
        if entries is not None and isinstance(key, str):
            return entries.get(key, item)
    return item


def _entries(file: PythonFile, owner: ast.expr) -> dict[str, ast.expr] | None:
    """Return key -> value of a dictionary that is written out once."""
    table = follow(file, owner) if isinstance(owner, ast.Name) else None
    if not isinstance(table, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        text = file.value(key) if key is not None else None
        if not isinstance(text, str):
            return None
        found[text] = value
    return found


def _order(file: PythonFile, names: ast.expr, owner: ast.expr) -> list[str] | None:
    """Return the keys in the order in which a loop goes through them."""
    is_sorted = isinstance(names, ast.Call) and file.qualified(names.func) == "sorted"
    if is_sorted and isinstance(names, ast.Call):
        if len(names.args) != 1 or names.keywords:
            return None
        names = names.args[0]
    if isinstance(names, ast.Call) and isinstance(names.func, ast.Attribute) and names.func.attr == "keys":
        names = names.func.value
    if isinstance(names, ast.Name) and isinstance(owner, ast.Name) and names.id == owner.id:
        keys = list(_entries(file, owner) or ())
    else:
        value = file.value(names)
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            return None
        keys = list(value)
    return sorted(keys) if is_sorted else keys
