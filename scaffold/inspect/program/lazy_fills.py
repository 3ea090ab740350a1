"""Attributes filled on first use: a statement that has filled one does not execute again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import options, same
from scaffold.inspect.program.values import Conf, Const, Obj, Param
from scaffold.source.frame import Frame
from scaffold.source.values import Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


class LazyFills:
    """``if self.part is None: self.part = make(...)``, in whichever method that stands."""

    def __init__(self, run: Execution) -> None:
        self.run = run
        self._filled: dict[int, tuple[Value, list[Value], Value]] = {}
        """What statements have put into attributes that were empty; by ``id`` of the statement."""

    def is_filled(self, node: ast.If, frame: Frame) -> bool:
        """Whether this statement has filled the attribute before, from the same arguments, and it still holds that."""
        found = self._fill(node, frame)
        if found is None:
            return False
        obj, call, name = found
        before = self._filled.get(id(node))
        if before is None or before[0] is not obj:
            return False
        given = self._given(call, frame)
        return (
            given is not None
            and len(given) == len(before[1])
            and all(same(a, b) for a, b in zip(given, before[1], strict=True))
            and any(option is before[2] for option in options(obj.attrs[name]))
        )

    def note_fill(self, node: ast.If, frame: Frame) -> None:
        """Keep what a statement has put into the attribute, if it is such a one."""
        found = self._fill(node, frame)
        if found is None:
            return
        obj, call, name = found
        given, held = self._given(call, frame), options(obj.attrs[name])
        if given is not None and isinstance(held[0], Obj):
            self._filled[id(node)] = obj, given, held[0]

    def _fill(self, node: ast.If, frame: Frame) -> tuple[Obj, ast.Call, str] | None:
        """The object, the call that makes its part, and the attribute."""
        *imports, last = node.body
        if node.orelse or not isinstance(last, ast.Assign) or not isinstance(last.value, ast.Call):
            return None
        target = last.targets[0]
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or len(last.targets) > 1:
            return None
        if not _asks_for_none(node.test, target) or not all(
            isinstance(s, (ast.Import, ast.ImportFrom)) for s in imports
        ):
            return None
        obj = frame.env.get(target.value.id)
        return (obj, last.value, target.attr) if isinstance(obj, Obj) and target.attr in obj.attrs else None

    def _given(self, call: ast.Call, frame: Frame) -> list[Value] | None:
        """What a call is given, if nothing that it reads can change between two uses, as a method's object can."""
        expressions = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not all(_root(expression) for expression in expressions) or isinstance(frame.env.get(_root(call.func)), Obj):
            return None
        values = [self.run.interpreter.evaluate(expression, frame) for expression in expressions]
        return values if all(_is_fixed(value) for value in values) else None


def _is_fixed(value: Value) -> bool:
    return isinstance(value, (Const, Param, Conf)) or (isinstance(value, Obj) and value.root == "od_config")


def _asks_for_none(test: ast.expr, target: ast.Attribute) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Is)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
        and isinstance(test.left, ast.Attribute)
        and test.left.attr == target.attr
        and ast.dump(test.left.value) == ast.dump(target.value)
    )


def _root(node: ast.expr) -> str:
    """The name that an attribute is read from; empty for any other expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
