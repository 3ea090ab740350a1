"""Tables of stacked parameters: which parts the checkpoint has for a fused layer, and in which order."""

from __future__ import annotations

import ast
from collections import defaultdict

from scaffold.source.syntax import walk_tree

Row = tuple[str, str, str | int]
_ORDER: dict[str | int, int] = {"q": 0, "k": 1, "v": 2}


def rows_of(tree: ast.AST) -> list[Row]:
    """Return every literal ``(parameter, part, shard)`` of a module."""
    found: list[Row] = []
    for node in walk_tree(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == 3:
            values = [entry.value for entry in node.elts if isinstance(entry, ast.Constant)]
            if len(values) == 3 and isinstance(values[0], str) and isinstance(values[1], str):
                if isinstance(values[2], int) or values[2] in _ORDER:
                    found.append((values[0], values[1], values[2]))  # type: ignore[arg-type]
    return found


def parts_of(rows: list[Row], name: str) -> tuple[str, ...] | None:
    """Return the parts of the fused layer ``name``.

    None where no table has them, where tables give it other parts at other places, or where the parts are not beside
    each other: the checkpoint's names are then a matter of the key map.
    """
    places: dict[str, dict[int, str]] = defaultdict(dict)
    for parameter, part, shard in rows:
        place, _, last = parameter.strip(".").rpartition(".")
        beside, _, own = part.strip(".").rpartition(".")
        if last != name:
            continue
        if place != beside or not own.isidentifier():
            return None
        places[place][_ORDER[shard] if isinstance(shard, str) else shard] = own
    found = {tuple(parts[index] for index in sorted(parts)) for parts in places.values()}
    if len(found) != 1:
        return None
    parts = found.pop()
    return parts if len(set(parts)) == len(parts) > 1 else None
