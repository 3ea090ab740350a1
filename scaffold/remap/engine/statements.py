"""Statements of the loading code."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from scaffold.bounded import method
from scaffold.inspect.program.modules import ModuleGraph, ModuleInfo
from scaffold.remap.engine.comprehensions import Comprehensions
from scaffold.remap.engine.execution import Frame
from scaffold.remap.engine.tokens import UNKNOWN, External, Function, Module, SlotShape, Unknown, Weight
from scaffold.remap.engine.undecided import LoadingError

_QUIET = ("logger", "logging", "warnings", "print", "log", "_logger", "LOG")
_MAX_TURNS = 100_000


class Leave:
    """How a block was left: ``break``, ``continue`` or ``return`` with a value."""

    def __init__(self, how: str, value: Any = None) -> None:
        self.how, self.value = how, value


_BREAK, _CONTINUE = Leave("break"), Leave("continue")


class Statements(Comprehensions):
    """Execution of statements."""

    def run(self, body: list[ast.stmt], frame: Frame) -> Leave | None:
        for node in body:
            self.step(node, frame)
            self.mark(node, frame)
            method = getattr(self, f"_run_{type(node).__name__}", None)
            if method is None:
                raise self.undecided(f"a {type(node).__name__.lower()} statement")
            left: Leave | None = method(node, frame)
            if left is not None:
                return left
        return None

    def _run_Expr(self, node: ast.Expr, frame: Frame) -> None:
        if not _is_quiet(node):
            self.evaluate(node.value, frame)

    def _run_Pass(self, node: ast.Pass, frame: Frame) -> None:
        return None

    _run_Global = _run_Nonlocal = _run_Pass

    def _run_Assert(self, node: ast.Assert, frame: Frame) -> None:
        test = self.evaluate(node.test, frame)
        if not isinstance(test, Unknown | Weight) and not self.truth(test):
            raise LoadingError(f"{self.place()}: an assertion fails")

    def _run_Delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                frame.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                table, key = self.evaluate(target.value, frame), self.evaluate(target.slice, frame)
                if isinstance(table, dict):
                    table.pop(key, None)

    def _run_Return(self, node: ast.Return, frame: Frame) -> Leave:
        return Leave("return", self.evaluate(node.value, frame) if node.value is not None else None)

    def _run_Break(self, node: ast.Break, frame: Frame) -> Leave:
        return _BREAK

    def _run_Continue(self, node: ast.Continue, frame: Frame) -> Leave:
        return _CONTINUE

    def _run_Raise(self, node: ast.Raise, frame: Frame) -> None:
        shown = ast.unparse(node.exc)[:100] if node.exc is not None else "an error"
        raise LoadingError(f"{self.place()}: it raises {shown}")

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.evaluate(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)

    def _run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, frame), frame)

    def _run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> None:
        load = ast.copy_location(_as_load(node.target), node.target)
        old = self.evaluate(load, frame)
        value = self.evaluate(node.value, frame)
        if isinstance(node.op, ast.BitOr) and isinstance(old, set) and isinstance(value, set | frozenset):
            old |= value
            return
        if isinstance(node.op, ast.Add) and isinstance(old, list):
            method(old, "extend", self.iterate(value))
            return
        self.assign(node.target, self.arithmetic(type(node.op), old, value), frame)

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.env[target.id] = value
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value, frame)
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value, frame)
            if isinstance(base, Module):
                base.node.attributes[target.attr] = value
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value, frame)
            key = UNKNOWN if isinstance(target.slice, ast.Slice) else self.evaluate(target.slice, frame)
            if (isinstance(base, dict) and not isinstance(key, Unknown)) or (
                isinstance(base, list) and isinstance(key, int) and -len(base) <= key < len(base)
            ):
                base[key] = value
            elif isinstance(base, dict):
                raise self.undecided("a table is filled under a name that is not known")

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, frame: Frame) -> None:
        count = len(target.elts)
        if isinstance(value, Weight):
            parts: list[Any] = [value.part(f"{number}/{count}") for number in range(count)]
        elif isinstance(value, Unknown | SlotShape):
            parts = [UNKNOWN] * count
        else:
            parts = self.iterate(value)
        stars = [place for place, item in enumerate(target.elts) if isinstance(item, ast.Starred)]
        if stars:
            begin, after = stars[0], count - stars[0] - 1
            parts = [*parts[:begin], parts[begin : len(parts) - after], *parts[len(parts) - after :]]
        if len(parts) != count:
            raise self.undecided(f"{len(parts)} values for {count} names")
        for item, part in zip(target.elts, parts, strict=True):
            self.assign(item, part, frame)

    def _run_If(self, node: ast.If, frame: Frame) -> Leave | None:
        test = self.evaluate(node.test, frame)
        if isinstance(test, Unknown):
            checks = [*node.body, *node.orelse]
            if all(_only_checks(item) for item in checks):
                if any(isinstance(n, ast.Raise) for item in checks for n in ast.walk(item)):
                    self.assumed.add("checks whose outcome the text does not give pass")
                for name in {n.id for item in checks for n in ast.walk(item) if _is_stored(n)}:
                    frame.env[name] = UNKNOWN
                return None
            self.mark(node, frame)
            raise self.undecided(f"`{ast.unparse(node.test)[:80]}` is not known from the text")
        return self.run(node.body if self.truth(test) else node.orelse, frame)

    def _run_For(self, node: ast.For, frame: Frame) -> Leave | None:
        items = self.iterate(self.evaluate(node.iter, frame))
        for item in items:
            self.assign(node.target, item, frame)
            left = self.run(node.body, frame)
            if left is _BREAK:
                return None
            if left is not None and left is not _CONTINUE:
                return left
        return self.run(node.orelse, frame)

    def _run_While(self, node: ast.While, frame: Frame) -> Leave | None:
        for _ in range(_MAX_TURNS):
            if not self.truth(self.evaluate(node.test, frame)):
                return self.run(node.orelse, frame)
            left = self.run(node.body, frame)
            if left is _BREAK:
                return None
            if left is not None and left is not _CONTINUE:
                return left
        raise self.undecided("a loop without an end")

    def _run_With(self, node: ast.With, frame: Frame) -> Leave | None:
        for item in node.items:
            value = self.evaluate(item.context_expr, frame)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, frame)
        return self.run(node.body, frame)

    def _run_Try(self, node: ast.Try, frame: Frame) -> Leave | None:
        try:
            left = self.run(node.body, frame)
            if left is None:
                left = self.run(node.orelse, frame)
        except LoadingError as error:
            handler = next((h for h in node.handlers if _catches(h, str(error))), None)
            if handler is None:
                self.run(node.finalbody, frame)
                raise
            if handler.name:
                frame.env[handler.name] = UNKNOWN
            left = self.run(handler.body, frame)
        return self.run(node.finalbody, frame) or left

    def _run_FunctionDef(self, node: ast.FunctionDef, frame: Frame) -> None:
        # The closure is the frame itself: names that are bound later are seen, as in Python.
        frame.env[node.name] = Function(node, frame.scope, _Closure(frame), None, frame.owner)

    def _run_Import(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        info = frame.scope.info or ModuleInfo("package", frame.scope.file, "package")
        bound: dict[str, Any] = {}
        ModuleGraph.bind_imports(info, node, bound)
        for name, found in bound.items():
            frame.env[name] = self.imported(found)

    _run_ImportFrom = _run_Import

    def imported(self, found: Any) -> Any:
        return External(found.module if found.name is None else f"{found.module}.{found.name}")


class _Closure(dict[str, Any]):
    """Names of an outer frame, looked up when they are needed."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def __contains__(self, key: object) -> bool:
        return key in self._frame.env or key in self._frame.closure

    def __getitem__(self, key: str) -> Any:
        return self._frame.env[key] if key in self._frame.env else self._frame.closure[key]

    def keys(self) -> Any:
        return {**self._frame.closure, **self._frame.env}.keys()

    def __iter__(self) -> Any:
        return iter(self.keys())


def _as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, node.attr, ast.Load())
    assert isinstance(node, ast.Subscript)
    return ast.Subscript(node.value, node.slice, ast.Load())


def _is_quiet(node: ast.stmt) -> bool:
    """Whether a statement only reports or counts."""
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.If):
        return all(_is_quiet(item) for item in (*node.body, *node.orelse))
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.Constant) and isinstance(node.target, ast.Name)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    if not isinstance(node.value, ast.Call):
        return False
    func = node.value.func
    while isinstance(func, ast.Attribute):
        func = func.value
    return isinstance(func, ast.Name) and func.id in _QUIET


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _only_checks(node: ast.stmt) -> bool:
    """Whether a statement does no more than work out local values, report and raise."""
    if _is_quiet(node) or isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.If):
        return all(_only_checks(item) for item in (*node.body, *node.orelse))
    if isinstance(node, ast.Assign):
        return all(not isinstance(n, ast.Attribute | ast.Subscript) or isinstance(n.ctx, ast.Load)
                   for target in node.targets for n in ast.walk(target))  # fmt: skip
    return False


def _catches(handler: ast.ExceptHandler, error: str) -> bool:
    if handler.type is None:
        return True
    names = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}
    return "Exception" in names or any(name in error for name in names)
