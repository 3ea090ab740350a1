"""Branches: a decided condition follows one side, an undecided one both, whose results are merged."""

from __future__ import annotations

import ast
from itertools import chain
from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import is_none, join, same
from scaffold.inspect.program.conditions import absent_param, params_of, rests_on_options, tested_param
from scaffold.inspect.program.lazy_fills import LazyFills
from scaffold.inspect.program.trace import Skip, Test
from scaffold.inspect.program.values import Choice, Const, Map, Op, Param, Seq
from scaffold.source.frame import Env, Frame, replace_env
from scaffold.source.values import Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


ROOTS = frozenset({"prompt", "media", "extra_args"})
# The text itself, which every request has.
_TEXT = ("", "prompt")
_Alternatives = tuple[tuple[str, str], ...]


class Branches:
    """Execution of ``if``; it tells whether execution goes on behind it."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path, self.fills = run, run.path, LazyFills(run)

    def branch(self, node: ast.If, cond: Value, frame: Frame) -> bool:
        tested = tested_param(cond)
        if tested is not None and any(_erases(statement, tested.key) for statement in (*node.body, *node.orelse)):
            self.run.erased.add((tested.root, tested.key))
        self._note_demands(node, cond, frame)
        truth = self.run.decide(cond)
        if truth is not None and _raises(node.body if truth else node.orelse):
            if self.run.constructing or rests_on_options(cond) or self.run.items.demands(cond):
                # A pipeline does not run with options, files or inputs that it refuses.
                truth = not truth
        elif truth is None and self.run.constructing and _raises(node.body) is not _raises(node.orelse):
            truth = not _raises(node.body)
        if truth is not None:
            before, left = dict(frame.env) if self.run.with_media else {}, _left(frame)
            alive = self._decided(node, cond, truth, frame)
            if not alive and _left(frame) == left and self.run.items.demands(cond):
                # Whatever way there is on this side, it ends in a refusal.
                replace_env(frame.env, before)
                alive = self._decided(node, cond, not truth, frame)
            elif truth:
                self.fills.note_fill(node, frame)
            return alive
        self._note_test(cond, node, frame)
        if self.fills.is_filled(node, frame):
            return True
        before = dict(frame.env)
        exits = _exits(frame)
        at_first = _left(frame)
        alive_then = self._side(node.body, cond, True, frame)
        after_then = dict(frame.env)
        after_body = _left(frame)
        replace_env(frame.env, before)
        alive_else = self._side(node.orelse, cond, False, frame)
        at_last = _left(frame)
        if alive_then and alive_else:
            replace_env(frame.env, self.merge([after_then, frame.env], cond))
        elif alive_then:
            replace_env(frame.env, after_then)
        if alive_then is not alive_else:
            # The rest of this block runs only if the branch that left it was not taken.
            self.path.conditions.append((cond, alive_then))
            refused = after_body == at_last if alive_then else at_first == after_body
            if refused:
                self.run.imposed[id(cond)] = cond
            if _exits(frame) > exits:
                # The turn may have ended: later additions to a list may be missing.
                self.path.depth += 1
        self.fills.note_fill(node, frame)
        return alive_then or alive_else

    def _note_demands(self, node: ast.If, cond: Value, frame: Frame) -> None:
        """Remember what a refusal asks for that stands under no condition but other refusals."""
        if _raises(node.body) and all(id(before) in self.run.imposed for before, _ in self.path.conditions):
            for group in _demanded_by(cond):
                self.run.trace.demands.setdefault(group, self.run.place(node, frame))

    def _decided(self, node: ast.If, cond: Value, truth: bool, frame: Frame) -> bool:
        param = absent_param(cond)
        kept = [n for n, v in frame.env.items() if v is param] if param is not None else []
        taken, skipped = (node.body, node.orelse) if truth else (node.orelse, node.body)
        returned = len(frame.returns)
        alive = self._filling(param, taken, frame)
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
        """A variable that replaces a setting when it is not given counts as that setting, too."""
        for statement in skipped:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not (isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and target.id in frame.env):
                continue
            held = frame.env[target.id]
            if len(statement.targets) == 1 and held is not param and self._means(statement.value, param, frame):
                frame.env[target.id] = Param(param.root, param.key, held, at=param.at)

    def _offer_result(self, param: Param, frame: Frame) -> None:
        """What a function returns where nobody gives a setting is that setting's default, if it else returns that."""
        last = frame.node.body[-1] if isinstance(frame.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        value, path = frame.returns[-1]
        if isinstance(last, ast.Return) and last.value is not None and self._means(last.value, param, frame):
            frame.returns[-1] = Param(param.root, param.key, value, at=param.at), path

    def _side(self, body: list[ast.stmt], cond: Value, polarity: bool, frame: Frame) -> bool:
        self.path.conditions.append((cond, polarity))
        self.path.marks.append(len(self.run.trace.calls))
        self.path.depth += 1
        self.path.branches.append((self.path.depth, cond, polarity))
        try:
            return self.run.interpreter.block(body, frame)
        finally:
            self.path.branches.pop()
            self.path.depth -= 1
            self.path.marks.pop()
            self.path.conditions.pop()

    def run_match(self, node: ast.Match, frame: Frame) -> bool:
        self.run.interpreter.evaluate(node.subject, frame)
        before = dict(frame.env)
        envs: list[Env] = [dict(before)]
        for case in node.cases:
            replace_env(frame.env, before)
            if self._side(case.body, Const("case"), True, frame):
                envs.append(dict(frame.env))
        replace_env(frame.env, self.merge(envs))
        return True

    def choose(self, node: ast.IfExp, cond: Value, frame: Frame) -> Value:
        evaluate = self.run.interpreter.evaluate
        truth = self.run.decide(cond)
        if truth is not None:
            value: Value = evaluate(node.body if truth else node.orelse, frame)
            param = absent_param(cond)
            if param is not None and self._means(node.orelse if truth else node.body, param, frame):
                return Param(param.root, param.key, value, at=value.at or param.at)
            return value
        self._note_test(cond, node, frame)
        results = []
        for branch, polarity in ((node.body, True), (node.orelse, False)):
            self.path.conditions.append((cond, polarity))
            self.path.depth += 1
            results.append(evaluate(branch, frame))
            self.path.depth -= 1
            self.path.conditions.pop()
        return join(results, cond, self.run.place(node, frame))

    def _means(self, node: ast.expr, param: Param, frame: Frame) -> bool:
        """Whether an expression is the parameter itself, converted at most."""
        while isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Name):
            node = node.args[0]
        reads = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if reads or isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return same(self.run.interpreter.evaluate(node, frame), param)
        return False

    def _note_test(self, cond: Value, node: ast.AST, frame: Frame) -> None:
        path = self.path
        self.run.trace.tests.append(
            Test(cond, self.run.place(node, frame), tuple(path.loops), tuple(path.conditions), frame.name)
        )

    def leaves(self, node: ast.Return | ast.Continue, value: Value | None, frame: Frame) -> None:
        """Remember a turn that is left, or a function whose result says nothing, under a condition."""
        says_nothing = value is None or (isinstance(value, Const) and not isinstance(value.value, str))
        if says_nothing and self.path.conditions:
            calls = len(self.run.trace.calls) - (self.path.marks[-1] if self.path.marks else 0)
            self.run.trace.skips.append(Skip(tuple(self.path.conditions), self.run.place(node, frame), calls))

    def _filling(self, param: Param | None, body: list[ast.stmt], frame: Frame) -> bool:
        """Execute statements under a condition, noting if it tests for the absence of a request's field."""
        self.run.filling.append(param.key if param is not None else "")
        try:
            return self.run.interpreter.block(body, frame)
        finally:
            self.run.filling.pop()

    @staticmethod
    def merge(envs: list[Env], cond: Value | None = None) -> Env:
        merged: Env = {}
        for name in dict.fromkeys(chain.from_iterable(envs)):
            values = [env[name] for env in envs if name in env]
            if len(values) == 1 or (len(values) == 2 and values[0] is values[1]):
                merged[name] = values[0]
            else:
                merged[name] = join(values, cond if len(values) == 2 else None)
        return merged


def _exits(frame: Frame) -> int:
    """Return how often the turn of the innermost loop has been left early."""
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


def _demanded_by(refusal: Value) -> tuple[_Alternatives, ...]:
    """Return what must be there for a condition that refuses a request not to hold; nothing where it asks otherwise.

    Args:
        refusal: the condition under which a request is refused.

    Returns:
        Groups of root and key: of each group one has to be there.
    """
    if isinstance(refusal, Op) and refusal.op == "or":
        return tuple(group for part in refusal.args for group in _demanded_by(part))
    if isinstance(refusal, Op) and refusal.op == "and":
        parts = [_demanded_by(part) for part in refusal.args]
        if all(len(part) == 1 for part in parts):
            return (tuple(key for part in parts for key in part[0]),)
        return ()
    if isinstance(refusal, Op) and refusal.op == "not" and isinstance(refusal.args[0], Choice):
        return _leading_to_nothing(refusal.args[0])
    group = _absent(refusal)
    return (group,) if group else ()


def _leading_to_nothing(found: Choice) -> tuple[_Alternatives, ...]:
    """What has to be there so that a choice is not the side on which there is nothing, as a helper returns it."""
    if found.cond is None or len(found.options) != 2:
        return ()
    first, second = (_is_nothing(option) for option in found.options)
    if first is second:
        return ()
    return _demanded_by(found.cond if first else _negated(found.cond))


def _is_nothing(value: Value) -> bool:
    if isinstance(value, Map):
        return value.exact and not value.items and not value.unkeyed
    if isinstance(value, Seq):
        return value.exact and not value.items and not value.appends
    return isinstance(value, Const) and not value.value


def _negated(cond: Value) -> Value:
    if isinstance(cond, Op) and cond.op in ("is", "isnot"):
        return Op("isnot" if cond.op == "is" else "is", cond.args)
    return cond.args[0] if isinstance(cond, Op) and cond.op == "not" else Op("not", [cond])


def _absent(cond: Value) -> _Alternatives:
    """The places of which all are empty where a condition tests for None, or for something that is not there."""
    if not isinstance(cond, Op) or not cond.args:
        return ()
    for_none = cond.op == "is" and len(cond.args) == 2 and is_none(cond.args[1])
    if not for_none and not (cond.op == "not" and isinstance(cond.args[0], Param)):
        return ()
    params = params_of(cond.args[0])
    if not params or any(param.root not in ROOTS or param.key in _TEXT for param in params):
        return ()
    return tuple(dict.fromkeys((param.root, param.key) for param in params))
