"""Names of files that code writes: the last part of a path, where the rest of it is not known."""

from __future__ import annotations

import ast
from itertools import product

from scaffold.check.model.dataflow import bound_value
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.values import known

_OPEN = "\0"  # stands for what is not known
_MOST = 32
_JOINING = {"os.path.join", "posixpath.join", "pathlib.Path", "pathlib.PurePath", "os.fspath", "str"}


def file_names(file: PythonFile, value: ast.expr) -> set[str] | None:
    """Return the names that the file behind a path may have; None where they are not plain."""
    texts = _texts(file, value, 8)
    names = {text.rpartition("/")[2] for text in texts}
    return None if not names or any(_OPEN in name or not name for name in names) else names


def _texts(file: PythonFile, value: ast.expr, hops: int) -> set[str]:
    """Return the texts that an expression may be, with a mark for each part that is not known."""
    if isinstance(value, ast.Constant):
        return {value.value if isinstance(value.value, str) else _OPEN}
    if isinstance(value, ast.JoinedStr):
        return _joined(file, value.values, "", hops)
    if isinstance(value, ast.FormattedValue):
        return _texts(file, value.value, hops) if value.format_spec is None else {_OPEN}
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Div)):
        return _joined(file, [value.left, value.right], "/" if isinstance(value.op, ast.Div) else "", hops)
    if isinstance(value, ast.IfExp):
        return _texts(file, value.body, hops) | _texts(file, value.orelse, hops)
    if isinstance(value, ast.Name) and hops:
        return _of_name(file, value, hops - 1)
    if isinstance(value, ast.Call):
        joining = file.qualified(value.func) in _JOINING or getattr(value.func, "attr", "") == "joinpath"
        if joining and value.args and not any(isinstance(item, ast.Starred) for item in value.args):
            return _joined(file, value.args, "/", hops)
    return {_OPEN}


def _joined(file: PythonFile, parts: list[ast.expr], between: str, hops: int) -> set[str]:
    choices = [_texts(file, part, hops) for part in parts]
    number = 1
    for choice in choices:
        number *= len(choice)
    return {between.join(texts) for texts in product(*choices)} if number <= _MOST else {_OPEN}


def _of_name(file: PythonFile, name: ast.Name, hops: int) -> set[str]:
    found: set[str] = set()
    for binding in file.scopes.lookup(name.id, name):
        if binding.kind != "variable":
            return {_OPEN}
        if binding.value is not None:
            found |= _texts(file, binding.value, hops)
            continue
        found |= _looped(file, binding.node)
    return found or {_OPEN}


def _looped(file: PythonFile, target: ast.AST) -> set[str]:
    """Return what a loop over a written list gives to one of its names."""
    listed = bound_value(file, target)
    parent = file.index.parent(target)
    at = None
    if isinstance(parent, ast.Tuple):
        at = next(number for number, item in enumerate(parent.elts) if item is target)
        parent = file.index.parent(parent)
    if listed is None or not isinstance(parent, (ast.For, ast.comprehension)):
        return {_OPEN}
    items = listed.elts if isinstance(listed, (ast.Tuple, ast.List)) else None
    if items is None:
        value = file.value(listed)
        if not isinstance(value, (list, tuple, dict)) or not known(value) or at is not None:
            return {_OPEN}
        return {item if isinstance(item, str) else _OPEN for item in value}
    if at is not None:
        pairs = [item for item in items if isinstance(item, (ast.Tuple, ast.List)) and len(item.elts) > at]
        if len(pairs) != len(items):
            return {_OPEN}
        items = [item.elts[at] for item in pairs]
    values = [file.value(item) for item in items]
    return {value if isinstance(value, str) else _OPEN for value in values}
