"""Loops with an unknown number of turns: the body is executed once, with everything it updates unknown."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import LoopRecord
from scaffold.inspect.program.values import Call, Carried, Elem, Index, Map, Op, Param, Seq
from scaffold.source.frame import Frame, replace_env
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Evidence, External, Func, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution

MAX_UNROLL = 64
MAX_ROWS = 32


def _assigned(body: list[ast.stmt]) -> list[str]:
    names: dict[str, None] = {}
    for statement in body:
        for node in walk_tree(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
    return list(names)


def _takes_first_given(node: ast.For | ast.AsyncFor) -> bool:
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
    """Return the first item that is not None; the item after an unset setting is its default."""
    found = items[-1]
    for item in reversed(items[:-1]):
        absent = isinstance(item, Param) and item.root in ("sampling_params", "extra_args") and default_of(item) is None
        found = Param(item.root, item.key, found, at=item.at) if absent and isinstance(item, Param) else item
    return found


class Loops:
    """What loops run over, and those that are not followed turn by turn."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def turns(self, node: ast.For | ast.AsyncFor, source: Value) -> list[Value] | None:
        """The items of a loop that is followed turn by turn."""
        known = self.run.iterate(source)
        if known is None or len(known) > MAX_UNROLL or not self.run.may_unroll:
            return None
        takes_first = isinstance(node, ast.For) and known and _takes_first_given(node)
        return [_first_given(known)] if takes_first else known

    def rows(self, source: Value, at: Evidence | None) -> tuple[list[Value], bool]:
        """What a comprehension runs over, and whether that is all of it."""
        known = self.run.iterate(source)
        if known is not None and len(known) <= MAX_ROWS and self.run.may_unroll:
            return known, True
        return known[:1] if known else [Elem(source, -1, at=at)], False

    def open_loop(self, node: ast.For | ast.AsyncFor | ast.While, source: Value, frame: Frame) -> bool:
        """Run the body once, with everything it updates unknown at the start of the turn."""
        number = len(self.run.trace.loops) + 1
        at = self.run.place(node, frame)
        carried: dict[str, Carried] = {}
        for name in _assigned(node.body):
            if name in frame.env and not isinstance(frame.env[name], (Map, Seq, Func)):
                carried[name] = Carried(name, number, frame.env[name], at=at)
                frame.env[name] = carried[name]
        record = LoopRecord(
            number, node, at, None, carried, tuple(self.path.conditions), frame.name,
            frame.owner.name if frame.owner else None, tuple(self.path.loops),
        )  # fmt: skip
        self.run.trace.loops[number] = record
        context = self.run.interpreter.open_context(frame)
        self.path.loops.append(number)
        self.path.depth += 1
        if isinstance(node, ast.While):
            record.source = self.run.interpreter.evaluate(node.test, frame)
        else:
            record.source = source
            self.run.interpreter.assign(node.target, self.turn(source, number), frame)
        falls = self.run.interpreter.block(node.body, frame)
        ends = ([dict(frame.env)] if falls else []) + context.continues + context.breaks
        self.path.depth -= 1
        self.path.loops.pop()
        frame.loops.pop()
        merged = self.run.merge(ends) if ends else dict(frame.env)
        for name, variable in carried.items():
            final = merged.get(name)
            if final is not None and final is not variable:
                variable.final = final
                merged[name] = variable
        replace_env(frame.env, merged)
        self.run.interpreter.block(node.orelse, frame)
        return True

    def turn(self, source: Value, number: int) -> Value:
        """The item of one turn of a loop over ``source``."""
        index = Index(number)
        if isinstance(source, Call) and isinstance(source.func, External):
            name = source.func.path.removeprefix("builtins.")
            if name == "enumerate" and source.args:
                start = source.argument(1, "start")
                first: Value = index if start is None else Op("+", [index, start])
                return Seq("tuple", [first, self.turn(source.args[0], number)])
            if name == "zip" and source.args:
                return Seq("tuple", [self.turn(a, number) for a in source.args])
            if name in ("range", "reversed", "tqdm", "trange"):
                if name == "range":
                    start = source.args[0] if len(source.args) > 1 else None
                    return index if start is None else Op("+", [index, start])
                if name == "tqdm" and source.args:
                    return self.turn(source.args[0], number)
        return Elem(source, number, at=source.at)
