"""Whether the values of a tensor get anywhere, or only its shape does."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import resolve
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.streams import ABOUT

LIKE = frozenset(f"torch.{name}_like" for name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint"))
NEW = frozenset(f"new_{name}" for name in ("zeros", "ones", "empty", "full", "tensor"))
MADE = frozenset(f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "rand", "randn")) | LIKE
_SAYING = ("print", "debug", "info", "warning", "warn", "error", "_check", "_assert")
_ASKED = ast.Pass()  # stands for a use that only looks: a test, the text of an error
_QUESTIONS = ("isinstance", "type", "torch.is_tensor", "torch.numel")


class Arrivals:
    """Follows values inside of one function.

    Args:
        function: the function.
    """

    def __init__(self, function: FunctionModel) -> None:
        self.function = function
        self._seen: set[ast.AST] = set()
        self._loads: dict[str, list[ast.Name]] | None = None
        self._reaching: dict[ast.Name, set[ast.AST]] = {}

    def lost(self, node: ast.AST) -> ast.AST | None:
        """Return where nothing but the shape of an expression, or of a parameter, is taken.

        None where its values may get somewhere, where nothing reads it, and where that is not plain.
        """
        self._seen = set()
        found = self._bound(node, node.arg) if isinstance(node, ast.arg) else self._from(node)
        return None if found is _ASKED else found

    def _bound(self, binding: ast.AST, name: str) -> ast.AST | None:
        """The same of what a parameter or a target is bound to."""
        if binding in self._seen:
            return binding
        self._seen.add(binding)
        where: ast.AST | None = None
        for use in self._uses(binding, name):
            found = self._from(use)
            if found is None:
                return None
            if found is not _ASKED:
                where = _plainer(where, found, binding)
        return where

    def loads(self, name: str) -> list[ast.Name]:
        """Return where a name is read."""
        if self._loads is None:
            self._loads = {}
            index = self.function.file.index
            for node in index.nodes(ast.Name, self.function.node):
                if isinstance(node.ctx, ast.Load) or isinstance(index.parent(node), ast.AugAssign):
                    self._loads.setdefault(node.id, []).append(node)
        return self._loads.get(name, [])

    def _from(self, node: ast.AST) -> ast.AST | None:
        """Climb from an expression to what becomes of it."""
        index = self.function.file.index
        for _ in range(60):
            parent = index.parent(node)
            if isinstance(parent, ast.Attribute):
                around = index.parent(parent)
                called = isinstance(around, ast.Call) and around.func is parent
                if parent.attr in ABOUT or (called and parent.attr in NEW):
                    return _ASKED if parent.attr in ABOUT and self._asks(parent) else parent
            elif isinstance(parent, ast.Call) and parent.func is not node:
                where = self._given(parent, node)
                if where is not None:
                    return where
                if not self._hands_on(parent):
                    return None
            elif isinstance(parent, ast.BinOp):
                other = parent.right if parent.left is node else parent.left
                if isinstance(parent.op, ast.Mult) and isinstance(other, ast.Constant) and other.value in (0, 0.0):
                    return parent
            elif isinstance(parent, ast.Compare):
                if all(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops):
                    return _ASKED
            elif isinstance(parent, ast.IfExp):
                if parent.test is node:
                    return None
            elif isinstance(parent, ast.Subscript):
                if parent.value is not node:
                    return None
            elif isinstance(parent, (ast.Assign, ast.AnnAssign)):
                return self._assigned(parent, node)
            elif not isinstance(parent, (ast.Call, ast.UnaryOp, ast.keyword, ast.Tuple, ast.List, ast.Starred)):
                return None
            node = parent
        return None

    def _asks(self, node: ast.AST) -> bool:
        """Whether an expression is only compared in a test, or told in a message."""
        index = self.function.file.index
        inner = node
        for outer in index.ancestors(node):
            if isinstance(outer, (ast.If, ast.While, ast.Assert, ast.IfExp)) and outer.test is inner:
                return True
            if isinstance(outer, ast.stmt):
                said = outer.value if isinstance(outer, ast.Expr) else None
                name = said.func if isinstance(said, ast.Call) else None
                told = getattr(name, "id", getattr(name, "attr", "")) in _SAYING
                return told or isinstance(outer, (ast.Raise, ast.Assert))
            inner = outer
        return False

    def _given(self, call: ast.Call, node: ast.AST) -> ast.AST | None:
        """Return a call that asks its argument for no more than its shape or kind."""
        name = self.function.file.qualified(call.func)
        first = call.args[0] if call.args else next((k for k in call.keywords if k.arg == "input"), None)
        if name in LIKE:
            return call if first is node else None
        return call if name in _QUESTIONS else None

    def _hands_on(self, call: ast.Call) -> bool:
        """Whether a call only answers: what it is given gets to its result or nowhere."""
        target = call.func
        name = self.function.file.qualified(target) or ""
        if name.startswith(("torch.", "math.")):
            return not name.startswith(("torch.save", "torch._assert", "torch.distributed"))
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            if target.value.id == self.function.bound and self.function.name == "forward":
                return True
        found = resolve(self.function.file, call, self.function.cls)
        return isinstance(found, FunctionModel) and found.cls is None and _answers(found)

    def _assigned(self, statement: ast.Assign | ast.AnnAssign, node: ast.AST) -> ast.AST | None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        where: ast.AST | None = None
        for target in targets:
            names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            if not all(isinstance(name, ast.Name) for name in names):
                return None
            for name in names:
                found = self._bound(name, name.id) if isinstance(name, ast.Name) else None
                if found is None and self._is_read(name):
                    return None
                where = where or found
        return where

    def _is_read(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and bool(self._uses(target, target.id))

    def _uses(self, binding: ast.AST, name: str) -> list[ast.Name]:
        """Return where the value that a name is bound to at one place may be read."""
        found = []
        for use in self.loads(name):
            if use not in self._reaching:
                self._reaching[use] = {one.node for one in reaching(self.function, use)}
            if binding in self._reaching[use]:
                found.append(use)
        return found


def _plainer(one: ast.AST | None, other: ast.AST, binding: ast.AST) -> ast.AST:
    """Return what says more of two places: a new tensor more than a question for the shape."""
    if one is None or one is binding or isinstance(other, (ast.Call, ast.BinOp)):
        return other
    return one


def _answers(function: FunctionModel) -> bool:
    """Whether a function of the package returns something and keeps nothing."""
    index = function.file.index
    attributes, items = index.nodes(ast.Attribute, function.node), index.nodes(ast.Subscript, function.node)
    keeps = any(isinstance(node.ctx, ast.Store) for node in attributes)
    keeps = keeps or any(isinstance(node.ctx, ast.Store) for node in items)
    return bool(function.returns) and not keeps


def blank(function: FunctionModel, expr: ast.expr, depth: int = 0) -> ast.expr | None:
    """Return where an expression is nothing but zeros, ones or new noise; None where it may be anything else."""
    if depth > 12:
        return None
    if isinstance(expr, ast.Call):
        target = expr.func
        name = function.file.qualified(target)
        if name in MADE or (isinstance(target, ast.Attribute) and target.attr in NEW and name is None):
            return expr
        if name is None and isinstance(target, ast.Attribute):
            own = isinstance(target.value, ast.Name) and target.value.id == function.bound
            return None if own else blank(function, target.value, depth + 1)
        found = resolve(function.file, expr, function.cls)
        if isinstance(found, FunctionModel) and len(expr.args) == 1 and not expr.keywords:
            return blank(function, expr.args[0], depth + 1)
        return None
    if isinstance(expr, (ast.Subscript, ast.Starred)):
        return blank(function, expr.value, depth + 1)
    if isinstance(expr, ast.UnaryOp):
        return blank(function, expr.operand, depth + 1)
    if isinstance(expr, ast.BinOp):
        sides = [blank(function, part, depth + 1) for part in (expr.left, expr.right)]
        plain = [isinstance(part, ast.Constant) for part in (expr.left, expr.right)]
        return next((s for s in sides if s), None) if all(s or p for s, p in zip(sides, plain, strict=True)) else None
    if isinstance(expr, ast.IfExp):
        arms = [arm for arm in (expr.body, expr.orelse) if not (isinstance(arm, ast.Constant) and arm.value is None)]
        found_arms = [blank(function, arm, depth + 1) for arm in arms]
        return found_arms[0] if found_arms and all(found_arms) else None
    if isinstance(expr, ast.Name):
        found_values = [
            blank(function, binding.value, depth + 1) if binding.value is not None else None
            for binding in reaching(function, expr)
        ]
        return found_values[0] if found_values and all(found_values) else None
    return None
