"""``from .package import *``, which runs the package's ``register`` decorators."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from scaffold.plan.registry import submodules
from scaffold.plan.registry.order import place
from scaffold.plan.registry.submodules import Statement

NOQA = "# noqa: F401, F403"


def add(body: Sequence[Statement], package: str) -> list[Statement]:
    """Add the import unless it is there: in order among the others, else after ``from . import``."""
    stars = [(index, name) for index, statement in enumerate(body) if (name := _name(statement))]
    names = [name for _, name in stars]
    if package in names:
        return list(body)
    statement = _statement(package)
    at = place(names, package)
    if not stars:
        index = submodules.last_index(body) + 1
    elif at > 0:
        index = stars[at - 1][0] + 1
    else:
        index = stars[0][0]
        first = body[index]
        # Comments above the block of imports stay above it.
        statement = statement.with_changes(leading_lines=first.leading_lines)
        return [*body[:index], statement, first.with_changes(leading_lines=[]), *body[index + 1 :]]
    return [*body[:index], statement, *body[index:]]


def remove(body: Sequence[Statement], package: str) -> list[Statement]:
    """Remove the import; lines above it move to the next statement if that has none of its own."""
    for index, statement in enumerate(body):
        if _name(statement) != package:
            continue
        rest = list(body[index + 1 :])
        if rest and _name(rest[0]) and not rest[0].leading_lines:
            rest[0] = rest[0].with_changes(leading_lines=statement.leading_lines)
        elif rest and any(line.comment for line in statement.leading_lines):
            rest[0] = rest[0].with_changes(leading_lines=[*statement.leading_lines, *rest[0].leading_lines])
        return [*body[:index], *rest]
    return list(body)


def _name(statement: Statement) -> str | None:
    """Return the module of a ``from .module import *``, None for any other statement."""
    node = submodules.sole(statement)
    if not isinstance(node, cst.ImportFrom) or not isinstance(node.names, cst.ImportStar) or len(node.relative) != 1:
        return None
    return node.module.value if isinstance(node.module, cst.Name) else None


def _statement(package: str) -> cst.SimpleStatementLine:
    node = cst.ImportFrom(module=cst.Name(package), relative=[cst.Dot()], names=cst.ImportStar())
    trailing = cst.TrailingWhitespace(whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(NOQA))
    return cst.SimpleStatementLine([node], trailing_whitespace=trailing)
