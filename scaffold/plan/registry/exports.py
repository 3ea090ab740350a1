"""``__all__ += list(package.__all__)``: the registry re-exports what a package exports."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from scaffold.errors import ScaffoldError
from scaffold.plan.registry.submodules import Statement, sole

TARGET = "__all__"


def add(body: Sequence[Statement], package: str, path: str) -> list[Statement]:
    """Add the line after the last of its kind, or at the end of the file if it is the first."""
    exports = [index for index, statement in enumerate(body) if _is_export(statement)]
    if any(_mentions(body[index], package) for index in exports):
        return list(body)
    if not exports:
        return [*body, cst.parse_statement(f"\n__all__ = list({package}.__all__)\n")]
    if any(_is_fixed(body[index]) for index in exports):
        raise ScaffoldError(f"{path}: expected `__all__` to be a list that packages add to")
    index = exports[-1] + 1
    return [*body[:index], cst.parse_statement(f"__all__ += list({package}.__all__)\n"), *body[index:]]


def remove(body: Sequence[Statement], package: str, path: str) -> list[Statement]:
    """Remove the line.

    Comments above it move to the next statement; see `comments_above` for the last statement.
    """
    exports = [index for index, statement in enumerate(body) if _is_export(statement)]
    for position, index in enumerate(exports):
        statement = body[index]
        if not _mentions(statement, package):
            continue
        if len(_packages(statement)) > 1:
            raise ScaffoldError(f"{path}: `__all__` names {package} and others in one statement; remove it by hand")
        rest = list(body[index + 1 :])
        following = exports[position + 1 :]
        if following and not isinstance(sole(statement), cst.AugAssign):
            offset = following[0] - index - 1
            rest[offset] = _as_first(rest[offset], statement)
        elif rest and any(line.comment for line in statement.leading_lines):
            rest[0] = rest[0].with_changes(leading_lines=[*statement.leading_lines, *rest[0].leading_lines])
        return [*body[:index], *rest]
    return list(body)


def comments_above(body: Sequence[Statement], package: str) -> list[cst.EmptyLine]:
    """Return the lines above the package's export if it is the last statement and they include comments."""
    if not body or not _is_export(body[-1]) or not _mentions(body[-1], package):
        return []
    lines = list(body[-1].leading_lines)
    return lines if any(line.comment for line in lines) else []


def _mentions(statement: Statement, package: str) -> bool:
    return package in _packages(statement)


def _packages(statement: Statement) -> list[str]:
    """Return each ``name`` whose ``name.__all__`` the statement reads."""
    pending: list[cst.CSTNode] = [statement]
    names = []
    while pending:
        node = pending.pop()
        if isinstance(node, cst.Attribute) and node.attr.value == TARGET and isinstance(node.value, cst.Name):
            names.append(node.value.value)
        pending += node.children
    return names


def _is_export(statement: Statement) -> bool:
    node = sole(statement)
    if isinstance(node, cst.Assign):
        return any(_is_target(target.target) for target in node.targets)
    return isinstance(node, (cst.AnnAssign, cst.AugAssign)) and _is_target(node.target)


def _is_target(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name) and node.value == TARGET


def _is_fixed(statement: Statement) -> bool:
    node = sole(statement)
    return isinstance(node, cst.Assign) and isinstance(node.value, (cst.Tuple, cst.Set))


def _as_first(statement: Statement, first: Statement) -> Statement:
    assert isinstance(statement, cst.SimpleStatementLine)
    node = statement.body[0]
    assert isinstance(node, cst.AugAssign)
    assign = cst.Assign(targets=[cst.AssignTarget(node.target)], value=node.value)
    return statement.with_changes(body=[assign], leading_lines=[*first.leading_lines, *statement.leading_lines])
