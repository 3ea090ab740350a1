"""Branches: where a condition is decided, one is followed, else both, and what they leave is merged."""

from __future__ import annotations

import ast

from scaffold.inspect.program.algebra import join
from scaffold.inspect.program.comprehensions import Comprehensions
from scaffold.inspect.program.conditions import absent_param, rests_on_options, tested_param
from scaffold.inspect.program.core import Frame
from scaffold.inspect.program.demands import demanded_by
from scaffold.inspect.program.lazy_fills import LazyFills
from scaffold.inspect.program.values import Param, Value

Env = dict[str, Value]


class Branches(LazyFills, Comprehensions):
    """Execution of ``if``; it tells whether execution goes on behind it."""

    def _run_If(self, node: ast.If, frame: Frame) -> bool:
        cond = self.evaluate(node.test, frame)
        tested = tested_param(cond)
        if tested is not None and any(_erases(statement, tested.key) for statement in (*node.body, *node.orelse)):
            self.erased.add((tested.root, tested.key))
        self._note_demands(node, cond, frame)
        truth = self.decide(cond)
        if truth is not None and _raises(node.body if truth else node.orelse):
            if self.constructing or rests_on_options(cond) or self.demands(cond):
                # No engine runs with options, files and inputs that its pipeline refuses.
                truth = not truth
        elif truth is None and self.constructing and _raises(node.body) is not _raises(node.orelse):
            truth = not _raises(node.body)
        if truth is not None:
            before, left = dict(frame.env) if self.with_media else {}, _left(frame)
            alive = self._decided(node, cond, truth, frame)
            if not alive and _left(frame) == left and self.demands(cond):
                # Whatever way there is on this side, it ends in a refusal.
                replace_env(frame.env, before)
                alive = self._decided(node, cond, not truth, frame)
            elif truth:
                self.note_fill(node, frame)
            return alive
        self.note_test(cond, node, frame)
        if self.is_filled(node, frame):
            return True
        before = dict(frame.env)
        exits = _exits(frame)
        at_first = _left(frame)
        alive_then = self._branch(node.body, cond, True, frame)
        after_then = dict(frame.env)
        after_body = _left(frame)
        replace_env(frame.env, before)
        alive_else = self._branch(node.orelse, cond, False, frame)
        at_last = _left(frame)
        if alive_then and alive_else:
            replace_env(frame.env, self._merge([after_then, frame.env], cond))
        elif alive_then:
            replace_env(frame.env, after_then)
        if alive_then is not alive_else:
            # What follows in this block runs only where the branch that left was not taken.
            self.conditions.append((cond, alive_then))
            refused = after_body == at_last if alive_then else at_first == after_body
            if refused:
                self.imposed[id(cond)] = cond
            if _exits(frame) > exits:
                # The turn may be over: what it puts into a list from here on may not be there.
                self.depth += 1
        self.note_fill(node, frame)
        return alive_then or alive_else

    def _note_demands(self, node: ast.If, cond: Value, frame: Frame) -> None:
        """Remember what a refusal asks for that stands under no condition but other refusals."""
        if _raises(node.body) and all(id(before) in self.imposed for before, _ in self.conditions):
            for group in demanded_by(cond):
                self.trace.demands.setdefault(group, self.at(node, frame))

    def _decided(self, node: ast.If, cond: Value, truth: bool, frame: Frame) -> bool:
        param = absent_param(cond)
        kept = [n for n, v in frame.env.items() if v is param] if param is not None else []
        taken, skipped = (node.body, node.orelse) if truth else (node.orelse, node.body)
        returned = len(frame.returns)
        alive = self.run_filling(param, taken, frame)
        if param is not None and alive:
            self._offer(param, skipped, frame)
        elif param is not None and len(frame.returns) == returned + 1:
            self._offer_result(param, frame)
        for name in kept:
            value = frame.env.get(name)
            if param is not None and value is not None and value is not param:
                # A default put in place of an absent value is that value's default.
                frame.env[name] = Param(param.root, param.key, value, at=value.at or param.at)
        return alive

    def _offer(self, param: Param, skipped: list[ast.stmt], frame: Frame) -> None:
        """A variable that takes a setting's place where nobody gives the setting is that setting, too."""
        for statement in skipped:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not (isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and target.id in frame.env):
                continue
            held = frame.env[target.id]
            if len(statement.targets) == 1 and held is not param and self._means(statement.value, param, frame):
                frame.env[target.id] = Param(param.root, param.key, held, at=param.at)

    def _offer_result(self, param: Param, frame: Frame) -> None:
        """What a function returns where nobody gives a setting is that setting's default, if it else returns that."""
        last = frame.node.body[-1] if isinstance(frame.node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        value, path = frame.returns[-1]
        if isinstance(last, ast.Return) and last.value is not None and self._means(last.value, param, frame):
            frame.returns[-1] = Param(param.root, param.key, value, at=param.at), path

    def _branch(self, body: list[ast.stmt], cond: Value, polarity: bool, frame: Frame) -> bool:
        self.conditions.append((cond, polarity))
        self.branch_marks.append(len(self.trace.calls))
        self.depth += 1
        self.branches.append((self.depth, cond, polarity))
        try:
            return self.run_block(body, frame)
        finally:
            self.branches.pop()
            self.depth -= 1
            self.branch_marks.pop()
            self.conditions.pop()

    @staticmethod
    def _merge(envs: list[Env], cond: Value | None = None) -> Env:
        merged: Env = {}
        for name in dict.fromkeys(n for env in envs for n in env):
            values = [env[name] for env in envs if name in env]
            merged[name] = values[0] if len(values) == 1 else join(values, cond if len(values) == 2 else None)
        return merged


def replace_env(env: Env, other: Env) -> None:
    """Make ``env`` hold what ``other`` holds; closures keep seeing the same dictionary."""
    if env is not other:
        values = dict(other)
        env.clear()
        env.update(values)


def _exits(frame: Frame) -> int:
    """How often the turn of the innermost loop has been left early."""
    return len(frame.loops[-1].continues) + len(frame.loops[-1].breaks) if frame.loops else 0


def _left(frame: Frame) -> tuple[int, int]:
    """How often the function, and the turn of its innermost loop, have been left."""
    return len(frame.returns), _exits(frame)


def _raises(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _erases(statement: ast.stmt, name: str) -> bool:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)):
        return False
    fields = [target.attr for target in statement.targets if isinstance(target, ast.Attribute)]
    return statement.value.value is None and name in fields
