"""Operators on symbolic values, folded where these are known."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING

from scaffold.inspect.program import conditions
from scaffold.inspect.program.algebra import is_none
from scaffold.inspect.program.numeric import MISSING, fold
from scaffold.inspect.program.trace import StringEdit
from scaffold.inspect.program.values import Conf, Const, Map, Op, Param, Seq, Slot
from scaffold.limits.bounded import joined
from scaffold.source.values import Evidence, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Not: "not",
    ast.Invert: "~",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "isnot",
    ast.In: "in",
    ast.NotIn: "notin",
    ast.And: "and",
    ast.Or: "or",
}


class Operations:
    """Arithmetic, comparisons, and texts."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def operate(self, kind: type[ast.AST], args: list[Value], at: Evidence | None) -> Value:
        """Apply an operator, folding constants."""
        op = _OPERATORS[kind]
        if op == "pos":
            return args[0]
        if all(isinstance(a, Const) for a in args):
            folded = fold(op, [a.value for a in args if isinstance(a, Const)])
            if folded is not MISSING:
                return Const(folded, at=at)
        left, right = args[0], args[-1]
        if op == "+" and len(args) == 2 and isinstance(left, Seq) and isinstance(right, Seq):
            return Seq(left.kind, [*left.items, *right.items], left.exact and right.exact, self.path.depth, at=at)
        if op == "*" and len(args) == 2:
            for seq, count in (args, args[::-1]):
                if isinstance(seq, Seq) and seq.exact and isinstance(count, Const) and isinstance(count.value, int):
                    if 0 <= count.value * len(seq.items) <= 64:
                        return Seq(seq.kind, seq.items * count.value, depth=self.path.depth, at=at)
        value = Op(op, args, at=at)
        if op == "+":
            self.note_edit(value)
        return value

    def note_edit(self, value: Value) -> None:
        """Remember a text that was made from another."""
        row = self.path.rows[-1] if self.path.rows else None
        self.run.trace.edits.append(StringEdit(value, tuple(self.path.conditions), row))

    def compare(self, kind: type[ast.cmpop], left: Value, right: Value, at: Evidence | None) -> Value:
        name = _OPERATORS[kind]
        pair = [right, left] if name in ("is", "isnot") and is_none(left) else [left, right]
        if name in ("is", "isnot") and isinstance(pair[0], Slot):
            return Op(name, pair, at=at)
        if name not in ("in", "notin"):
            return self.operate(kind, pair, at)
        if isinstance(right, Param) and isinstance(left, Const) and isinstance(left.value, str):
            if right.key == "extra_args" or (right.root == "prompt" and not right.key):
                self.run.items.param_item(right, left.value, None, at)
        return Op(name, pair, at=at)

    def one_of(self, kind: type[ast.boolop], kept: list[Value], at: Evidence | None) -> Value:
        """Return the choice between operands of ``and`` or ``or`` whose result is unknown."""
        op, first = _OPERATORS[kind], kept[0]
        if op == "or" and isinstance(first, (Param, Conf)) and _falls_back(first):
            rest = kept[1] if len(kept) == 2 else Op("or", kept[1:], at=at)
            if isinstance(first, Conf):
                return Conf(first.file, first.path, rest, first.stated, at=at)
            return Param(first.root, first.key, rest, at=at)
        return Op(op, kept, at=at)

    def text(self, parts: list[Value], node: ast.JoinedStr, at: Evidence | None) -> Value:
        if all(isinstance(p, Const) for p in parts):
            with suppress(ValueError):
                return Const(joined(p.value for p in parts if isinstance(p, Const)), at=at)
        value = Op("format", parts, at=at)
        self.note_edit(value)
        return value


def _falls_back(value: Param | Conf) -> bool:
    """Whether ``value or x`` is x by default."""
    default = value.default
    if default is None or is_none(default):
        return True
    return isinstance(default, (Const, Seq, Map)) and conditions.decide(default) is False
