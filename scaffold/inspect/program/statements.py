"""Execution of statements."""

from __future__ import annotations

import ast

from scaffold.inspect.program.branches import Branches, Env, replace_env
from scaffold.inspect.program.core import Frame
from scaffold.inspect.program.modules import Import, ModuleGraph
from scaffold.inspect.program.trace import Skip
from scaffold.inspect.program.updates import WRITTEN
from scaffold.inspect.program.values import (
    Call,
    Carried,
    ClassRef,
    Const,
    Elem,
    External,
    Func,
    Seq,
    Value,
)


class Statements(Branches):
    """One method for each kind of statement; each tells whether execution goes on behind it."""

    def run_block(self, body: list[ast.stmt], frame: Frame) -> bool:
        pushed, depth = len(self.conditions), self.depth
        try:
            for statement in body:
                self.steps += 1
                method = getattr(self, "_run_" + type(statement).__name__, None)
                if method is not None and not method(statement, frame):
                    return False
            return True
        finally:
            del self.conditions[pushed:]
            self.depth = depth

    def _run_Expr(self, node: ast.Expr, frame: Frame) -> bool:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value, frame)
        return True

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> bool:
        value = self.evaluate(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)
        return True

    def _run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> bool:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, frame), frame)
        return True

    def _run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> bool:
        read = ast.copy_location(_as_load(node.target), node)
        combined = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        old = self.evaluate(read, frame)
        if isinstance(node.op, ast.Add) and isinstance(old, Seq):
            added = self.evaluate(node.value, frame)
            self.extend(old, added)
            return True
        self.assign(node.target, self.evaluate(combined, frame), frame)
        return True

    def extend(self, seq: Seq, added: Value) -> None:
        """``seq += added`` in place."""
        known = self.iterate(added)
        items = known if known is not None else [Elem(added, -1, at=added.at)]
        for item in items:
            self.append(seq, item)
        if known is None or len(seq.items) < len(items):
            seq.exact = False

    def append(self, seq: Seq, item: Value) -> None:
        if self.loop_stack:
            seq.appends.append((item, self.loop_stack[-1]))
        if self.depth > seq.depth:
            seq.exact = False
        if len(seq.items) < 256:
            seq.items.append(item)

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.env[target.id] = value
        elif isinstance(target, ast.Attribute):
            self.set_attr(self.evaluate(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value, frame)
            self.set_item(base, self.evaluate(target.slice, frame), value)
            if isinstance(target.value, ast.Name) and _is_carried(base):
                written = External(f"torch.{WRITTEN}")
                frame.env[target.value.id] = self.opaque(written, [base, value], {}, self.at(target, frame))
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)

    def _unpack(self, targets: list[ast.expr], value: Value, frame: Frame) -> None:
        star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        known = self.iterate(value)
        if known is not None and star is None and len(known) == len(targets):
            for target, item in zip(targets, known, strict=True):
                self.assign(target, item, frame)
            return
        for position, target in enumerate(targets):
            if star is not None and position == star:
                self.assign(target, Elem(value, -1, at=value.at), frame)
            else:
                index = position if star is None or position < star else position - len(targets)
                self.assign(target, self.get_item(value, Const(index), self.at(target, frame)), frame)

    def _run_Return(self, node: ast.Return, frame: Frame) -> bool:
        value = self.evaluate(node.value, frame) if node.value is not None else Const(None)
        frame.returns.append((value, tuple(self.conditions[frame.outside :])))
        if isinstance(value, Const) and not isinstance(value.value, str):
            self._note_skip(node, frame)
        return False

    def _run_Raise(self, node: ast.Raise, frame: Frame) -> bool:
        self.trace.raises += 1
        return False

    def _run_Break(self, node: ast.Break, frame: Frame) -> bool:
        if frame.loops:
            frame.loops[-1].breaks.append(dict(frame.env))
        return False

    def _run_Continue(self, node: ast.Continue, frame: Frame) -> bool:
        if frame.loops:
            frame.loops[-1].continues.append(dict(frame.env))
        self._note_skip(node, frame)
        return False

    def _note_skip(self, node: ast.AST, frame: Frame) -> None:
        if self.conditions:
            calls = len(self.trace.calls) - (self.branch_marks[-1] if self.branch_marks else 0)
            self.trace.skips.append(Skip(tuple(self.conditions), self.at(node, frame), calls))

    def _run_With(self, node: ast.With, frame: Frame) -> bool:
        for item in node.items:
            value = self.evaluate(item.context_expr, frame)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, frame)
        return self.run_block(node.body, frame)

    _run_AsyncWith = _run_With

    def _run_Try(self, node: ast.Try, frame: Frame) -> bool:
        alive = self.run_block(node.body, frame)
        if alive:
            alive = self.run_block(node.orelse, frame)
        return self.run_block(node.finalbody, frame) and alive

    def _run_FunctionDef(self, node: ast.FunctionDef, frame: Frame) -> bool:
        closure = frame.env
        if frame.closure:
            closure = _Chain(frame.env, frame.closure)
        frame.env[node.name] = Func(node, frame.module, frame.owner, None, closure, at=self.at(node, frame))
        return True

    def _run_ClassDef(self, node: ast.ClassDef, frame: Frame) -> bool:
        frame.env[node.name] = ClassRef(self.classes.get(node, frame.module), at=self.at(node, frame))
        return True

    def _run_Import(self, node: ast.Import, frame: Frame) -> bool:
        bound: dict[str, Import] = {}
        ModuleGraph.bind_imports(frame.module, node, bound)
        for name, target in bound.items():
            frame.env[name] = self.resolve_import(target)
        return True

    def _run_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> bool:
        bound: dict[str, Import] = {}
        ModuleGraph.bind_imports(frame.module, node, bound)
        for name, target in bound.items():
            frame.env[name] = self.resolve_import(target)
        return True

    def _run_Match(self, node: ast.Match, frame: Frame) -> bool:
        self.evaluate(node.subject, frame)
        before = dict(frame.env)
        envs: list[Env] = [dict(before)]
        for case in node.cases:
            replace_env(frame.env, before)
            if self._branch(case.body, Const("case"), True, frame):
                envs.append(dict(frame.env))
        replace_env(frame.env, self._merge(envs))
        return True


class _Chain(dict[str, Value]):
    """A closure whose enclosing scope has one of its own."""

    def __init__(self, inner: Env, outer: Env) -> None:
        super().__init__()
        self._inner, self._outer = inner, outer

    def __contains__(self, key: object) -> bool:
        return key in self._inner or key in self._outer

    def __getitem__(self, key: str) -> Value:
        return self._inner[key] if key in self._inner else self._outer[key]


def _is_carried(value: Value) -> bool:
    """Whether a value is what a loop carries on, entries of it written at the most."""
    while isinstance(value, Call) and value.name == WRITTEN:
        value = value.args[0]
    return isinstance(value, Carried)


def _as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, node.attr, ast.Load())
    if isinstance(node, ast.Subscript):
        return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)
    return node
