"""Rotary embedding in the forward code: which channels are paired, how they are joined, how tables are laid out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from scaffold.check.model.calls import argument
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.streams import reads

# Channels i and i + n/2 are a pair, or 2i and 2i + 1.
Layout = Literal["halves", "neighbours"]
_LAST = (-1,)


class Pair(NamedTuple):
    """Two names that the channels of a head are split into, in their order.

    Attributes:
        layout: how.
        names: of the first and the second part.
        node: where.
    """

    layout: Layout
    names: tuple[str, str]
    node: ast.AST


class Join(NamedTuple):
    """A place where two parts are joined to the channels of a head.

    Attributes:
        layout: how.
        parts: the two expressions.
        node: where.
    """

    layout: Layout
    parts: tuple[ast.expr, ast.expr]
    node: ast.expr


def pairs(function: FunctionModel) -> Iterator[Pair]:
    """Yield the splits of a function into two parts."""
    single: dict[tuple[str, Layout], dict[int, tuple[str, ast.AST]]] = {}
    for statement in function.file.index.nodes(ast.Assign, function.node):
        target, value = statement.targets[0], statement.value
        if (
            isinstance(target, ast.Tuple)
            and len(target.elts) == 2
            and all(isinstance(t, ast.Name) for t in target.elts)
        ):
            names = tuple(t.id for t in target.elts if isinstance(t, ast.Name))
            values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == 2 else None
            if values is None:
                layout = _split(function, value)
                if layout is not None:
                    yield Pair(layout, (names[0], names[1]), value)
                continue
            named = list(zip(names, values, strict=True))
        else:
            named = [(target.id, value)] if isinstance(target, ast.Name) else []
        for name, part in named:
            found = _part(function, part)
            if found is not None:
                source, layout, at = found
                # Both in one statement are marked together.
                single.setdefault((source, layout), {}).setdefault(at, (name, value))
    for (_, layout), parts in single.items():
        if set(parts) == {0, 1}:
            yield Pair(layout, (parts[0][0], parts[1][0]), parts[0][1])


def _split(function: FunctionModel, value: ast.expr) -> Layout | None:
    """Return how a call splits the last dimension into two: ``chunk(2, -1)``, ``unflatten(-1, (-1, 2)).unbind(-1)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    kind = value.func.attr
    of_torch = function.file.qualified(value.func) == f"torch.{kind}"
    at = 1 if of_torch else 0
    subject = value.args[0] if of_torch and value.args else value.func.value
    if kind in ("chunk", "tensor_split"):
        count, dimension = argument(value, "chunks", at), argument(value, "dim", at + 1)
        two = count is not None and function.file.value(count) == 2
        return "halves" if two and _is_last(function, dimension) else None
    if kind == "unbind" and isinstance(subject, ast.Call) and isinstance(subject.func, ast.Attribute):
        sizes = _sizes(subject)
        dimension = argument(value, "dim", at)
        place = function.file.value(dimension) if dimension is not None else None
        known = [function.file.value(size) for size in sizes[-2:]]
        if len(sizes) >= 2 and place == -1 and known[1] == 2:
            return "neighbours"
        if len(sizes) >= 2 and place == -2 and known[0] == 2:
            return "halves"
    return None


def _sizes(call: ast.Call) -> list[ast.expr]:
    """Return the last sizes that ``unflatten``, ``reshape`` or ``view`` give."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("unflatten", "reshape", "view"):
        return []
    given = call.args[1:] if call.func.attr == "unflatten" else call.args
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        return list(given[0].elts)
    return list(given)


def _is_last(function: FunctionModel, dimension: ast.expr | None) -> bool:
    return dimension is not None and function.file.value(dimension) in _LAST


def _part(function: FunctionModel, value: ast.expr) -> tuple[str, Layout, int] | None:
    """Return source, layout and place (0 or 1) of ``x[..., 0::2]``, ``x[..., :n]`` and their like."""
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
        return None
    places = value.slice.elts if isinstance(value.slice, ast.Tuple) else []
    last = places[-1] if places and isinstance(places[0], ast.Constant) and places[0].value is ... else None
    if not isinstance(last, ast.Slice):
        return None
    low = function.file.value(last.lower) if last.lower is not None else 0
    if last.step is not None:
        if function.file.value(last.step) != 2 or last.upper is not None or low not in (0, 1):
            return None
        return value.value.id, "neighbours", 1 if low == 1 else 0
    if (last.lower is None or low == 0) == (last.upper is None):
        return None
    return value.value.id, "halves", 0 if last.upper is not None else 1


def joins(function: FunctionModel) -> Iterator[Join]:
    """Yield the places where two expressions are joined along the last dimension."""
    index = function.file.index
    for call in function.calls:
        name = function.file.qualified(call.func)
        if name not in ("torch.cat", "torch.concat", "torch.stack") or not call.args:
            continue
        parts = call.args[0]
        if not isinstance(parts, (ast.Tuple, ast.List)) or len(parts.elts) != 2:
            continue
        dimension = argument(call, "dim", 1)
        place = function.file.value(dimension) if dimension is not None else 0
        both = (parts.elts[0], parts.elts[1])
        if name != "torch.stack":
            if place == -1:
                yield Join("halves", both, call)
            continue
        parent = index.parent(call)
        folded = isinstance(parent, ast.Attribute) and parent.attr in (
            "flatten",
            "reshape",
            "view",
            "reshape_as",
            "view_as",
        )
        if folded and place in (-1, -2):
            yield Join("neighbours" if place == -1 else "halves", both, call)


def tables(function: FunctionModel) -> Iterator[tuple[Layout, ast.expr]]:
    """Yield where the angles of a function that takes their cosine and sine are written out for both of a pair."""
    waves = {call.func.attr for call in function.calls if isinstance(call.func, ast.Attribute)}
    if not {"cos", "sin"} <= waves:
        return
    for join in joins(function):
        if isinstance(join.parts[0], ast.Name) and ast.dump(join.parts[0]) == ast.dump(join.parts[1]):
            yield join.layout, join.node
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "repeat_interleave":
            of_torch = function.file.qualified(call.func) == "torch.repeat_interleave"
            times, dimension = (argument(call, n, at + of_torch) for n, at in (("repeats", 0), ("dim", 1)))
            if times is not None and function.file.value(times) == 2 and _is_last(function, dimension):
                yield "neighbours", call


def read_by(function: FunctionModel, part: ast.expr, pair: Pair) -> set[int]:
    """Return which of the two parts an expression reads, through names that are assigned once."""
    found = set()
    for at, name in enumerate(pair.names):
        names = {name} | {
            other for other, value in function.assignments if other not in pair.names and reads(value, {name})
        }
        if reads(part, names if not isinstance(part, ast.UnaryOp) else {name}):
            found.add(at)
    return found


def turned(join: Join) -> bool:
    """Whether one of the two parts is negated: the pair turned by a right angle."""
    return any(isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) for part in join.parts)


def waves(function: FunctionModel) -> set[str]:
    """Return which of ``cos`` and ``sin`` a function speaks of by name."""
    names = (node.id for node in function.file.index.nodes(ast.Name, function.node))
    return {wave for name in names for wave in ("cos", "sin") if _is_wave(name, wave)}


def wave_of(node: ast.expr) -> str | None:
    """Return ``cos`` or ``sin`` of ``cos``, ``self.cos_table[:, None]``, ``angles.cos()``; None of anything else."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        inner = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Call) and isinstance(inner, ast.Attribute) and inner.attr not in ("cos", "sin"):
            inner = inner.value
        node = inner
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    found = [wave for wave in ("cos", "sin") if _is_wave(name, wave)]
    return found[0] if len(found) == 1 else None


def _is_wave(name: str, wave: str) -> bool:
    return name == wave or wave in name.lower().split("_") or name.lower().startswith(f"{wave}e")
