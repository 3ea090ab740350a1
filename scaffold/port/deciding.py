"""Conditions that the surroundings decide: only the side that is taken is carried over."""

from __future__ import annotations

import libcst as cst

from scaffold.port.constants import truth


class Deciding(cst.CSTTransformer):
    """Rewrites conditional expressions.

    Attributes:
        problems: what has no counterpart, since the last `clear`.
        assumed: names of answers that were taken as given, since the last `clear`.
        decided: whether a call about the surroundings was answered since the last `clear`.
    """

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__()
        self.known = known
        self.problems: list[str] = []
        self.assumed: list[str] = []
        self.decided = False

    def clear(self) -> None:
        """Forget what the last statement met."""
        self.problems, self.assumed, self.decided = [], [], False

    def rewrite(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the expression as it stands in the port."""
        found = node.visit(self)
        assert isinstance(found, cst.BaseExpression)
        return found

    def visit_IfExp(self, node: cst.IfExp) -> bool:
        return False

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        before = len(self.problems)
        test = self.rewrite(original_node.test)
        holds = truth(test, self.known)
        if holds is not None:
            del self.problems[before:]
            return _wrapped(self.rewrite(original_node.body if holds else original_node.orelse))
        return updated_node.with_changes(
            test=test, body=self.rewrite(original_node.body), orelse=self.rewrite(original_node.orelse)
        )

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> bool:
        return False

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        ends = isinstance(original_node.operator, cst.Or)
        before = len(self.problems)
        left = self.rewrite(original_node.left)
        holds = truth(left, self.known)
        if holds is not None:
            del self.problems[before:]
            return cst.Name(str(holds)) if holds == ends else _wrapped(self.rewrite(original_node.right))
        middle = len(self.problems)
        right = self.rewrite(original_node.right)
        if truth(right, self.known) == ends and middle > before:
            # What the left side asked for was not carried over, and does not matter.
            del self.problems[before:]
            return cst.Name(str(ends))
        return updated_node.with_changes(left=left, right=right)


def _wrapped(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that may stand where the one around it had parentheses or several lines."""
    if isinstance(node, (cst.Name, cst.Integer, cst.SimpleString)) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
