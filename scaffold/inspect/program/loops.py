"""Execution of loops."""

from __future__ import annotations

import ast

from scaffold.inspect.program.branches import replace_env
from scaffold.inspect.program.core import INLINE_BUDGET, Frame, LoopContext
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.statements import Statements
from scaffold.inspect.program.syntax import walk_tree
from scaffold.inspect.program.trace import LoopRecord
from scaffold.inspect.program.values import (
    Call,
    Carried,
    Elem,
    External,
    Func,
    Index,
    Map,
    Op,
    Param,
    Seq,
    Value,
)

MAX_UNROLL = 64
UNROLL_BUDGET = 10 * INLINE_BUDGET


def _assigned(body: list[ast.stmt]) -> list[str]:
    names: dict[str, None] = {}
    for statement in body:
        for node in walk_tree(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
    return list(names)


def _takes_first_given(node: ast.For) -> bool:
    """Whether a loop ends with its first item that is not None, and does nothing with the others."""
    if len(node.body) != 1 or node.orelse or not isinstance(node.target, ast.Name):
        return False
    inner = node.body[0]
    if not isinstance(inner, ast.If) or inner.orelse or not isinstance(inner.body[-1], ast.Break):
        return False
    test = inner.test
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and isinstance(test.left, ast.Name)
        and test.left.id == node.target.id
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
    )


def _first_given(items: list[Value]) -> Value:
    """The first item that is not None: what stands behind a setting that nobody gives is its default."""
    found = items[-1]
    for item in reversed(items[:-1]):
        absent = isinstance(item, Param) and item.root in ("sampling_params", "extra_args") and default_of(item) is None
        found = Param(item.root, item.key, found, at=item.at) if absent and isinstance(item, Param) else item
    return found


class Loops(Statements):
    """Loops: over known items turn by turn, else once with all they update unknown."""

    def _run_For(self, node: ast.For, frame: Frame) -> bool:
        source = self.evaluate(node.iter, frame)
        known = self.iterate(source)
        if known is not None and len(known) <= MAX_UNROLL and self.steps < UNROLL_BUDGET:
            return self._unroll(node, [_first_given(known)] if known and _takes_first_given(node) else known, frame)
        self._abstract_loop(node, source, frame)
        return True

    _run_AsyncFor = _run_For

    def _unroll(self, node: ast.For, turns: list[Value], frame: Frame) -> bool:
        context = LoopContext()
        frame.loops.append(context)
        alive = True
        pushed = len(self.conditions)
        depth = self.depth
        for turn in turns:
            self.assign(node.target, turn, frame)
            self.rows.append(turn)
            context.continues = []
            falls = self.run_block(node.body, frame)
            self.rows.pop()
            ends = ([dict(frame.env)] if falls else []) + context.continues
            if not ends:
                alive = False
                break
            replace_env(frame.env, self._merge(ends))
            if context.breaks:
                self.depth = depth + 1
        del self.conditions[pushed:]
        self.depth = depth
        frame.loops.pop()
        if alive:
            alive = self.run_block(node.orelse, frame) or bool(context.breaks)
        elif context.breaks:
            alive = True
            frame.env.clear()
        if context.breaks:
            replace_env(frame.env, self._merge([frame.env, *context.breaks] if frame.env else context.breaks))
        return alive

    def _run_While(self, node: ast.While, frame: Frame) -> bool:
        cond = self.evaluate(node.test, frame)
        if self.decide(cond) is False:
            return self.run_block(node.orelse, frame)
        self._abstract_loop(node, None, frame)
        return True

    def _abstract_loop(self, node: ast.For | ast.AsyncFor | ast.While, source: Value | None, frame: Frame) -> None:
        """Run the body once, with everything it updates unknown at the start of the turn."""
        number = len(self.trace.loops) + 1
        at = self.at(node, frame)
        carried: dict[str, Carried] = {}
        for name in _assigned(node.body):
            if name in frame.env and not isinstance(frame.env[name], Map | Seq | Func):
                carried[name] = Carried(name, number, frame.env[name], at=at)
                frame.env[name] = carried[name]
        record = LoopRecord(
            number, node, at, source, carried, tuple(self.conditions), self.function_name(frame),
            frame.owner.name if frame.owner else None, tuple(self.loop_stack),
        )  # fmt: skip
        self.trace.loops[number] = record
        context = LoopContext()
        frame.loops.append(context)
        self.loop_stack.append(number)
        self.depth += 1
        if isinstance(node, ast.While):
            record.source = self.evaluate(node.test, frame)
        else:
            self._bind_turn(node, source, number, frame)
        falls = self.run_block(node.body, frame)
        ends = ([dict(frame.env)] if falls else []) + context.continues + context.breaks
        self.depth -= 1
        self.loop_stack.pop()
        frame.loops.pop()
        merged = self._merge(ends) if ends else dict(frame.env)
        for name, variable in carried.items():
            final = merged.get(name)
            if final is not None and final is not variable:
                variable.final = final
                merged[name] = variable
        replace_env(frame.env, merged)
        self.run_block(node.orelse, frame)

    def _bind_turn(self, node: ast.For | ast.AsyncFor, source: Value | None, number: int, frame: Frame) -> None:
        assert source is not None
        at = self.at(node, frame)
        self.assign(node.target, self.turn(source, number, at), frame)

    def turn(self, source: Value, number: int, at: object) -> Value:
        """The item of one turn of a loop over ``source``."""
        index = Index(number)
        if isinstance(source, Call) and isinstance(source.func, External):
            name = source.func.path.removeprefix("builtins.")
            if name == "enumerate" and source.args:
                start = source.argument(1, "start")
                first: Value = index if start is None else Op("+", [index, start])
                return Seq("tuple", [first, self.turn(source.args[0], number, at)])
            if name == "zip" and source.args:
                return Seq("tuple", [self.turn(a, number, at) for a in source.args])
            if name in ("range", "reversed", "tqdm", "trange"):
                if name == "range":
                    start = source.args[0] if len(source.args) > 1 else None
                    return index if start is None else Op("+", [index, start])
                if name == "tqdm" and source.args:
                    return self.turn(source.args[0], number, at)
        return Elem(source, number, at=source.at)
