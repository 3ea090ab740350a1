"""Whether code runs while a module is trained: tests of ``training`` and of gradients."""

from __future__ import annotations

import ast


def asks_mode(test: ast.expr, module: str) -> bool:
    """Whether a test asks for the mode of a module: ``module.training``, ``torch.is_grad_enabled()``."""
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and node.attr == "training":
            if isinstance(node.value, ast.Name) and node.value.id == module:
                return True
        if isinstance(node, (ast.Attribute, ast.Name)) and getattr(node, "attr", "") == "is_grad_enabled":
            return True
    return False


def in_training(test: ast.expr) -> bool | None:
    """Whether a test holds while the module is trained: ``self.training``, ``torch.is_grad_enabled()``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = in_training(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [in_training(part) for part in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in parts else None if None in parts else not decides
    name = test.func if isinstance(test, ast.Call) and not test.args else test
    word = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    return True if word in ("training", "is_grad_enabled", "requires_grad") else None


def taken(choice: ast.If | ast.IfExp, on: bool | None) -> list[ast.stmt] | list[ast.expr]:
    """Return the branch that is taken where the test is that; nothing where it is not plain."""
    if on is None:
        return []
    branch = choice.body if on else choice.orelse
    return branch if isinstance(branch, list) else [branch]
