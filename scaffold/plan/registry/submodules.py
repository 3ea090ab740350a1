"""``from . import (a, b)``: the name of each package, in order; comments stay with their name."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from scaffold.errors import ScaffoldError
from scaffold.plan.registry.order import place

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Gap = cst.BaseParenthesizableWhitespace

LINE_LENGTH = 120

_PLAIN = cst.TrailingWhitespace()
_ITEM = cst.ParenthesizedWhitespace(first_line=_PLAIN, indent=True, last_line=cst.SimpleWhitespace("    "))
_END = cst.ParenthesizedWhitespace(first_line=_PLAIN, indent=True)


def create(body: Sequence[Statement], package: str, *, blank: bool) -> list[Statement]:
    """Append the import to a registry that has none; with ``blank``, after an empty line."""
    statement = cst.ImportFrom(module=None, relative=[cst.Dot()], names=[cst.ImportAlias(cst.Name(package))])
    lines = [cst.EmptyLine(indent=False)] if blank else []
    return [*body, cst.SimpleStatementLine([_built(statement, [cst.Name(package)], [_ITEM, _END], comma=True)], lines)]


def add(body: Sequence[Statement], package: str, path: str) -> list[Statement]:
    """Add the name unless some ``from . import`` already has it."""
    imports = _imports(body)
    if not imports:
        raise ScaffoldError(f"{path}: expected a `from . import (…)` that lists the packages")
    if any(package in _names(node) for node in imports.values()):
        return list(body)
    index = max(imports, key=lambda i: len(_names(imports[i])))
    return _replaced(body, index, _with_name(imports[index], package))


def remove(body: Sequence[Statement], package: str) -> list[Statement]:
    """Remove the name, and the whole import if it has no other name."""
    for index, node in _imports(body).items():
        if package not in _names(node):
            continue
        if len(_names(node)) == 1:
            return [*body[:index], *body[index + 1 :]]
        return _replaced(body, index, _without_name(node, package))
    return list(body)


def last_index(body: Sequence[Statement]) -> int:
    """Return the index of the last ``from . import``, or -1."""
    return max(_imports(body), default=-1)


def sole(statement: Statement) -> cst.BaseSmallStatement | None:
    """Return the one small statement on a line, or None."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return statement.body[0]
    return None


def _imports(body: Sequence[Statement]) -> dict[int, cst.ImportFrom]:
    found = {}
    for index, statement in enumerate(body):
        node = sole(statement)
        if isinstance(node, cst.ImportFrom) and node.module is None and len(node.relative) == 1 and _aliases(node):
            found[index] = node
    return found


def _aliases(node: cst.ImportFrom) -> list[cst.ImportAlias]:
    return [] if isinstance(node.names, cst.ImportStar) else list(node.names)


def _names(node: cst.ImportFrom) -> list[str]:
    return [alias.evaluated_name for alias in _aliases(node)]


def _replaced(body: Sequence[Statement], index: int, node: cst.ImportFrom) -> list[Statement]:
    statement = body[index]
    assert isinstance(statement, cst.SimpleStatementLine)
    return [*body[:index], statement.with_changes(body=[node]), *body[index + 1 :]]


def _gaps(node: cst.ImportFrom) -> list[Gap]:
    """Return the white space before each name and, last, that after all names."""
    aliases = _aliases(node)
    gaps: list[Gap] = [node.lpar.whitespace_after if node.lpar else cst.SimpleWhitespace("")]
    gaps += [alias.comma.whitespace_after for alias in aliases if isinstance(alias.comma, cst.Comma)]
    if len(gaps) == len(aliases):
        gaps.append(node.rpar.whitespace_before if node.rpar else cst.SimpleWhitespace(""))
    return gaps


def _with_name(node: cst.ImportFrom, package: str) -> cst.ImportFrom:
    aliases, gaps = _aliases(node), _gaps(node)
    index = place(_names(node), package)
    gap = gaps[index]
    if index == len(aliases):
        before, after = _item(gaps, gap), gap
        if isinstance(gap, cst.ParenthesizedWhitespace):
            after = gap.with_changes(first_line=_PLAIN)
    elif isinstance(gap, cst.ParenthesizedWhitespace):
        # A comment after the previous name stays there; comments above the next name stay above it.
        before, after = gap.with_changes(empty_lines=[]), gap.with_changes(first_line=_PLAIN)
    else:
        before, after = gap, cst.SimpleWhitespace(" ")
    gaps[index : index + 1] = [before, after]
    nodes: list[cst.ImportAlias | cst.Name] = [*aliases[:index], cst.Name(package), *aliases[index:]]
    comma = isinstance(aliases[-1].comma, cst.Comma)
    built = _built(node, nodes, gaps, comma=comma)
    one_line = not any(isinstance(gap, cst.ParenthesizedWhitespace) for gap in gaps)
    # A line that was already too long is not wrapped: `remove` could not restore it.
    if one_line and _width(node) <= LINE_LENGTH < _width(built):
        built = _built(node, nodes, [_ITEM] * len(nodes) + [_END], comma=True)
    return built


def _width(node: cst.ImportFrom) -> int:
    return len(cst.Module([]).code_for_node(node))


def _without_name(node: cst.ImportFrom, package: str) -> cst.ImportFrom:
    aliases, gaps = _aliases(node), _gaps(node)
    index = _names(node).index(package)
    before, after = gaps[index], gaps[index + 1]
    last = index == len(aliases) - 1
    merged = after if last else before
    if isinstance(before, cst.ParenthesizedWhitespace) and isinstance(after, cst.ParenthesizedWhitespace):
        lines = [*before.empty_lines, *after.empty_lines]
        merged = after.with_changes(first_line=before.first_line, empty_lines=lines)
    gaps[index : index + 2] = [merged]
    comma = isinstance(aliases[-1].comma, cst.Comma)
    return _built(node, [*aliases[:index], *aliases[index + 1 :]], gaps, comma=comma)


def _item(gaps: Sequence[Gap], end: Gap) -> Gap:
    """Return the white space for a new last name, taken from after the previous last one."""
    models = [gap for gap in gaps[:-1] if isinstance(gap, cst.ParenthesizedWhitespace)]
    if models and isinstance(end, cst.ParenthesizedWhitespace):
        return models[-1].with_changes(first_line=end.first_line, empty_lines=[])
    return cst.SimpleWhitespace(" ")


def _built(
    node: cst.ImportFrom, names: Sequence[cst.ImportAlias | cst.Name], gaps: Sequence[Gap], *, comma: bool
) -> cst.ImportFrom:
    aliases = [name if isinstance(name, cst.ImportAlias) else cst.ImportAlias(name) for name in names]
    commas: list[cst.Comma | cst.MaybeSentinel] = [cst.Comma(whitespace_after=gap) for gap in gaps[1:]]
    lpar, rpar = node.lpar, node.rpar
    multiline = any(isinstance(gap, cst.ParenthesizedWhitespace) for gap in gaps)
    if lpar is None and multiline:
        lpar, rpar = cst.LeftParen(), cst.RightParen()
    if lpar is not None:
        lpar = lpar.with_changes(whitespace_after=gaps[0])
    if rpar is not None:
        rpar = rpar.with_changes(whitespace_before=cst.SimpleWhitespace("") if comma else gaps[-1])
    if not comma:
        commas[-1] = cst.MaybeSentinel.DEFAULT
    return node.with_changes(
        names=[alias.with_changes(comma=c) for alias, c in zip(aliases, commas, strict=True)], lpar=lpar, rpar=rpar
    )
