"""What a rollout records of its window: the names of its ends, the lists, how they begin."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.dataflow import origin, reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sde import appended, options, sampling_calls
from scaffold.check.model.sides import Side
from scaffold.check.model.streams import root_name


def window_ends(function: FunctionModel) -> dict[str, str]:
    """Return the names that are unpacked from a window: name -> ``begin`` or ``end``."""
    found: dict[str, str] = {}
    for name in function.file.index.nodes(ast.Name, function.node):
        place = unpacked_at(function.file, name) if isinstance(name.ctx, ast.Store) else None
        if place is not None and isinstance(place[0], ast.Tuple):
            continue  # ``i, window = x, y``: one value each
        value = place[0] if place is not None else None
        if value is None and isinstance(name.ctx, ast.Store):
            value, at = _nested(function, name)
            place = (value, at) if value is not None else None
        if (
            place is not None
            and place[1] < 2
            and "window" in ast.unparse(place[0])
            and "range" not in ast.unparse(place[0])
        ):
            found[name.id] = ("begin", "end")[place[1]]
    return found


def _nested(function: FunctionModel, name: ast.Name) -> tuple[ast.expr | None, int]:
    """Return the value of ``i, (a, b) = x, value`` for a and b."""
    inner = function.file.index.parent(name)
    outer = function.file.index.parent(inner) if isinstance(inner, ast.Tuple) else None
    statement = function.file.index.parent(outer) if isinstance(outer, ast.Tuple) else None
    if isinstance(statement, ast.Assign) and isinstance(outer, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        at = next((i for i, item in enumerate(outer.elts) if item is inner), 0)
        if at < len(statement.value.elts) and isinstance(inner, ast.Tuple):
            return statement.value.elts[at], next(i for i, item in enumerate(inner.elts) if item is name)
    return None, 0


def written_out(function: FunctionModel, value: ast.expr) -> str:
    """Return a value as it is written, local names followed."""
    text = ast.unparse(value)
    for name in function.file.index.nodes(ast.Name, value):
        for binding in reaching(function, name):
            found = binding.value
            if found is None and (place := unpacked_at(function.file, binding.node)) is not None:
                found = place[0].elts[place[1]] if isinstance(place[0], ast.Tuple) else place[0]
            text += " " + ast.unparse(found) if found is not None else ""
    return text


def asked_elsewhere(function: FunctionModel, node: ast.Compare, ends: dict[str, str]) -> bool:
    others = [n for n in function.file.index.nodes(ast.Compare, function.node) if n is not node]
    return any(isinstance(n, ast.Name) and n.id in ends for other in others for n in (other.left, *other.comparators))


def grows_lists(function: FunctionModel, name: str) -> bool:
    """Whether lists grow under ``if name``."""
    for node in function.file.index.nodes(ast.If, function.node):
        if isinstance(node.test, ast.Name) and node.test.id == name:
            calls = [c for part in node.body for c in function.file.index.nodes(ast.Call, part)]
            return any(isinstance(c.func, ast.Attribute) and c.func.attr == "append" for c in calls)
    return False


def result_lists(
    side: Side, part: str
) -> Iterator[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]]:
    """Yield the lists of ``self`` that a part of the result is stacked of, with the calls that fill them."""
    seen: set[str] = set()
    for option in options(side, part):
        for around, _, node in origin(side, option.function, option.value).nodes:
            if around is None or not isinstance(node, ast.Call) or not node.args:
                continue
            stacked = isinstance(node.func, ast.Attribute) and node.func.attr in ("stack", "cat")
            first = node.args[0]
            if stacked and isinstance(first, ast.Attribute) and first.attr not in seen:
                seen.add(first.attr)
                yield around, first, appended(side, around, first)


def starts_empty(side: Side, around: FunctionModel, node: ast.Attribute) -> bool:
    cls = side.receiver(around)
    assigned = cls.instance_attributes(node.attr) if cls is not None else []
    values = [item.value if item.value is not None else _unpacked(item.file, item.node) for item in assigned]
    return bool(values) and all(isinstance(value, ast.List) and not value.elts for value in values)


def _unpacked(file: PythonFile, node: ast.AST) -> ast.expr | None:
    place = unpacked_at(file, node)
    if place is None or not isinstance(place[0], ast.Tuple) or place[1] >= len(place[0].elts):
        return None
    return place[0].elts[place[1]]


def is_of_result(side: Side, function: FunctionModel, value: ast.expr) -> bool | None:
    """Whether a value comes out of the scheduler's step: True, False where it goes in, None where it is not plain."""
    name = root_name(value)
    calls = [call for around, call in sampling_calls(side) if around == function]
    names = [n for n in function.file.index.nodes(ast.Name, value) if n.id == name]
    if not calls or not names:
        return None
    for binding in reaching(function, names[0]):
        place = unpacked_at(function.file, binding.node)
        if (place is not None and place[0] in calls) or binding.value in calls:
            return True
    return False if any(name in {n.id for n in function.file.index.nodes(ast.Name, call)} for call in calls) else None


def words_of_end(side: Side, around: FunctionModel, node: ast.Slice) -> set[str]:
    parts = [part for part in (node.lower, node.upper) if part is not None]
    return {word for part in parts for word in origin(side, around, part).words}
