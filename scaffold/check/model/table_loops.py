"""Loops over a table of renames: in which order they meet the rows, and which way they go."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from scaffold.check.model.key_tables import KeyTable, Rename
from scaffold.check.model.pyfile import PythonFile


def joined_names(value: ast.expr) -> tuple[str, str] | None:
    """Return the two names of ``a + b`` or ``f"{a}{b}"``."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        parts = [value.left, value.right]
    elif isinstance(value, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in value.values]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return (names[0], names[1]) if len(names) == len(parts) == 2 else None


def goes_back(loop: ast.For) -> bool:
    """Whether the loop asks for the second of each pair and answers with the first."""
    assert isinstance(loop.target, ast.Tuple)
    first, second = (item.id if isinstance(item, ast.Name) else "" for item in loop.target.elts)
    asked = any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "startswith"
        and any(isinstance(item, ast.Name) and item.id == second for item in node.args)
        for node in ast.walk(loop)
    )
    answers = [node.value for node in ast.walk(loop) if isinstance(node, ast.Return) and node.value is not None]
    return asked and any(isinstance(n, ast.Name) and n.id == first for value in answers for n in ast.walk(value))


def rows_in_order(
    file: PythonFile, value: ast.expr, tables: dict[str, KeyTable]
) -> tuple[str, Sequence[Rename] | None]:
    """Return the table and its rows in the order in which a loop meets them; None where that is not plain."""
    if isinstance(value, ast.Name):
        return value.id, tables[value.id].rows if value.id in tables else None
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        name, rows = rows_in_order(file, value.value, tables)
        parts = (value.slice.lower, value.slice.upper, value.slice.step)
        values = [file.value(part) if part is not None else None for part in parts]
        ends = [value for value in values if value is None or isinstance(value, int)]
        plain = len(ends) == len(values) and ends[2] != 0
        return name, rows[slice(*ends)] if rows is not None and plain else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or not value.args:
        return "", None
    name, rows = rows_in_order(file, value.args[0], tables)
    if rows is None or value.func.id in ("list", "tuple", "iter"):
        return name, rows
    if value.func.id == "reversed":
        return name, rows[::-1]
    if value.func.id != "sorted":
        return name, None
    return name, _sorted(value, rows)


def _sorted(call: ast.Call, rows: Sequence[Rename]) -> Sequence[Rename] | None:
    """Return the rows as ``sorted`` gives them, by the length of one side; None for any other order."""
    key = next((ast.unparse(item.value) for item in call.keywords if item.arg == "key"), "")
    found = re.fullmatch(r"lambda (\w+): (-?)len\(\1\[([01])\]\)", key)
    reverse = next((item.value for item in call.keywords if item.arg == "reverse"), ast.Constant(value=False))
    if found is None or not isinstance(reverse, ast.Constant):
        return None
    side: Callable[[Rename], int] = lambda row: len((row.source, row.target or "")[int(found[3])])  # noqa: E731
    longest_first = bool(found[2]) != bool(reverse.value)
    return sorted(rows, key=lambda row: -side(row) if longest_first else side(row))
