"""Blocks of statements as libcst has them."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

_EMPTY = cst.Module([])


def code(node: cst.CSTNode) -> str:
    """Return the text of a node."""
    return _EMPTY.code_for_node(node)


def ends(node: cst.BaseStatement) -> bool:
    """Tell whether nothing behind a statement of the same block is reached."""
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[-1], (cst.Raise, cst.Return))


def indented(body: Sequence[cst.BaseStatement]) -> cst.IndentedBlock:
    """Return a block; an empty one says so."""
    return cst.IndentedBlock(list(body) or [cst.SimpleStatementLine([cst.Pass()])])


def small_assignment(target: cst.BaseExpression, value: cst.BaseExpression) -> cst.Assign:
    """Return ``target = value``."""
    assert isinstance(target, cst.BaseAssignTargetExpression)
    return cst.Assign([cst.AssignTarget(target)], value)
