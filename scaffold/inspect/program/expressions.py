"""Evaluation of expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress

from scaffold.bounded import joined
from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import conditions
from scaffold.inspect.program.algebra import is_none, join, same
from scaffold.inspect.program.core import Frame
from scaffold.inspect.program.items import Items
from scaffold.inspect.program.numeric import MISSING, fold
from scaffold.inspect.program.trace import StringEdit, Test
from scaffold.inspect.program.values import (
    MOST_ITEMS,
    Conf,
    Const,
    Elem,
    External,
    Func,
    Map,
    Op,
    Param,
    Seq,
    Slice,
    Slot,
    Unknown,
    Value,
)

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
}


class Expressions(Items):
    """One method for each kind of expression."""

    def decide(self, value: Value) -> bool | None:
        return conditions.decide(value)

    def evaluate(self, node: ast.expr, frame: Frame) -> Value:
        self.steps += 1
        method = self._evaluators.get(type(node))
        if method is None:
            method = self._evaluators[type(node)] = self._evaluator(node)
        value: Value = method(node, frame)
        return value

    def _evaluator(self, node: ast.expr) -> Callable[..., Value]:
        found: Callable[..., Value] = getattr(self, "_eval_" + type(node).__name__, self._eval_other)
        return found

    def _eval_other(self, node: ast.expr, frame: Frame) -> Value:
        return Unknown(type(node).__name__, at=self.at(node, frame))

    def _eval_Constant(self, node: ast.Constant, frame: Frame) -> Value:
        return Const(node.value, at=self.at(node, frame))

    def _eval_Name(self, node: ast.Name, frame: Frame) -> Value:
        name = node.id
        if name in frame.env:
            return frame.env[name]
        if frame.closure is not None and name in frame.closure:
            return frame.closure[name]
        value = self.lookup_global(frame.module, name)
        return value if value is not None else External(f"builtins.{name}", at=self.at(node, frame))

    def _eval_Attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        return self.get_attr(self.evaluate(node.value, frame), node.attr, self.at(node, frame))

    def _eval_Subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base = self.evaluate(node.value, frame)
        key = self.evaluate(node.slice, frame)
        value = self.get_item(base, key, self.at(node, frame))
        if isinstance(key, Slice):
            self._note_edit(value)
        return value

    def _eval_Slice(self, node: ast.Slice, frame: Frame) -> Value:
        parts = [self.evaluate(p, frame) if p is not None else None for p in (node.lower, node.upper, node.step)]
        return Slice(*parts, at=self.at(node, frame))

    def _sequence(self, kind: str, elts: list[ast.expr], node: ast.AST, frame: Frame) -> Value:
        items: list[Value] = []
        exact = True
        for element in elts:
            if isinstance(element, ast.Starred):
                value = self.evaluate(element.value, frame)
                known = self.iterate(value)
                if known is None:
                    exact = False
                    items.append(Elem(value, -1, at=self.at(element, frame)))
                else:
                    items.extend(known[:MOST_ITEMS])
                    exact = exact and len(known) <= MOST_ITEMS
            else:
                items.append(self.evaluate(element, frame))
        return Seq(kind, items, exact, self.depth, at=self.at(node, frame))

    def _eval_Tuple(self, node: ast.Tuple, frame: Frame) -> Value:
        return self._sequence("tuple", node.elts, node, frame)

    def _eval_List(self, node: ast.List, frame: Frame) -> Value:
        return self._sequence("list", node.elts, node, frame)

    def _eval_Set(self, node: ast.Set, frame: Frame) -> Value:
        return self._sequence("set", node.elts, node, frame)

    def _eval_Dict(self, node: ast.Dict, frame: Frame) -> Value:
        result = Map({}, depth=self.depth, at=self.at(node, frame))
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.evaluate(item, frame)
            if key is None:
                self._spread(result, value)
                continue
            name = self.evaluate(key, frame)
            if isinstance(name, Const) and name.value.__hash__ is not None:
                result.items[name.value] = value
            else:
                result.exact = False
                result.unkeyed.append(value)
        return result

    def _spread(self, into: Map, value: Value) -> None:
        if isinstance(value, Map):
            into.items.update(value.items)
            into.exact = into.exact and value.exact
        else:
            into.exact = False
            into.items.setdefault("**", value)

    def _eval_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Value:
        return self.operate(_OPERATORS[type(node.op)], [self.evaluate(node.operand, frame)], self.at(node, frame))

    def _eval_BinOp(self, node: ast.BinOp, frame: Frame) -> Value:
        args = [self.evaluate(node.left, frame), self.evaluate(node.right, frame)]
        return self.operate(_OPERATORS[type(node.op)], args, self.at(node, frame))

    def operate(self, op: str, args: list[Value], at: Evidence | None) -> Value:
        """Apply an operator, folding constants."""
        if op == "pos":
            return args[0]
        if all(isinstance(a, Const) for a in args):
            folded = fold(op, [a.value for a in args if isinstance(a, Const)])
            if folded is not MISSING:
                return Const(folded, at=at)
        left, right = args[0], args[-1]
        if op == "+" and len(args) == 2 and isinstance(left, Seq) and isinstance(right, Seq):
            return Seq(left.kind, [*left.items, *right.items], left.exact and right.exact, self.depth, at=at)
        if op == "*" and len(args) == 2:
            for seq, count in (args, args[::-1]):
                if isinstance(seq, Seq) and seq.exact and isinstance(count, Const) and isinstance(count.value, int):
                    if 0 <= count.value * len(seq.items) <= 64:
                        return Seq(seq.kind, seq.items * count.value, depth=self.depth, at=at)
        value = Op(op, args, at=at)
        if op == "+":
            self._note_edit(value)
        return value

    def _note_edit(self, value: Value) -> None:
        self.trace.edits.append(StringEdit(value, tuple(self.conditions), self.rows[-1] if self.rows else None))

    def _eval_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Value:
        at = self.at(node, frame)
        op = "or" if isinstance(node.op, ast.Or) else "and"
        kept: list[Value] = []
        for index, operand in enumerate(node.values):
            value = self.evaluate(operand, frame)
            truth = self.decide(value)
            last = index == len(node.values) - 1
            if truth is (op == "or") and not isinstance(value, Param | Conf):
                kept.append(value)
                break
            if truth is not None and truth is not (op == "or") and not last and not isinstance(value, Param | Conf):
                continue
            kept.append(value)
        if len(kept) == 1:
            return kept[0]
        first = kept[0]
        if op == "or" and isinstance(first, Param | Conf) and self._falls_back(first):
            rest = kept[1] if len(kept) == 2 else Op("or", kept[1:], at=at)
            if isinstance(first, Conf):
                return Conf(first.file, first.path, rest, at=at)
            return Param(first.root, first.key, rest, at=at)
        return Op(op, kept, at=at)

    @staticmethod
    def _falls_back(value: Param | Conf) -> bool:
        """Whether ``value or x`` is x by default."""
        default = value.default
        if default is None or is_none(default):
            return True
        return isinstance(default, Const | Seq | Map) and conditions.decide(default) is False

    def _eval_Compare(self, node: ast.Compare, frame: Frame) -> Value:
        at = self.at(node, frame)
        left = self.evaluate(node.left, frame)
        parts: list[Value] = []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator, frame)
            name = _OPERATORS[type(op)]
            pair = [right, left] if name in ("is", "isnot") and is_none(left) else [left, right]
            if name in ("is", "isnot") and isinstance(pair[0], Slot):
                parts.append(Op(name, pair, at=at))
            elif name in ("in", "notin"):
                if isinstance(right, Param) and isinstance(left, Const) and isinstance(left.value, str):
                    if right.key == "extra_args" or (right.root == "prompt" and not right.key):
                        self.param_item(right, left.value, None, at)
                parts.append(Op(name, pair, at=at))
            else:
                parts.append(self.operate(name, pair, at))
            left = right
        return parts[0] if len(parts) == 1 else Op("and", parts, at=at)

    def _eval_IfExp(self, node: ast.IfExp, frame: Frame) -> Value:
        cond = self.evaluate(node.test, frame)
        truth = self.decide(cond)
        if truth is not None:
            value = self.evaluate(node.body if truth else node.orelse, frame)
            param = conditions.absent_param(cond)
            other = node.orelse if truth else node.body
            if param is not None and self._means(other, param, frame):
                return Param(param.root, param.key, value, at=value.at or param.at)
            return value
        self.note_test(cond, node, frame)
        results = []
        for branch, polarity in ((node.body, True), (node.orelse, False)):
            self.conditions.append((cond, polarity))
            self.depth += 1
            results.append(self.evaluate(branch, frame))
            self.depth -= 1
            self.conditions.pop()
        return join(results, cond, self.at(node, frame))

    def _means(self, node: ast.expr, param: Param, frame: Frame) -> bool:
        """Whether an expression is the parameter itself, converted at most."""
        while isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Name):
            node = node.args[0]
        reads = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if reads or isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return same(self.evaluate(node, frame), param)
        return False

    def note_test(self, cond: Value, node: ast.AST, frame: Frame) -> None:
        self.trace.tests.append(
            Test(cond, self.at(node, frame), tuple(self.loop_stack), tuple(self.conditions), self.function_name(frame))
        )

    @staticmethod
    def function_name(frame: Frame) -> str:
        return frame.node.name if isinstance(frame.node, ast.FunctionDef | ast.AsyncFunctionDef) else ""

    def _eval_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Value:
        parts: list[Value] = []
        for piece in node.values:
            parts.append(self.evaluate(piece.value if isinstance(piece, ast.FormattedValue) else piece, frame))
        if all(isinstance(p, Const) for p in parts):
            with suppress(ValueError):
                return Const(joined(p.value for p in parts if isinstance(p, Const)), at=self.at(node, frame))
        value = Op("format", parts, at=self.at(node, frame))
        self._note_edit(value)
        return value

    def _eval_Lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        closure = {**frame.closure, **frame.env} if frame.closure else frame.env
        return Func(node, frame.module, frame.owner, None, closure, at=self.at(node, frame))

    def _eval_Starred(self, node: ast.Starred, frame: Frame) -> Value:
        return self.evaluate(node.value, frame)

    def _eval_Await(self, node: ast.Await, frame: Frame) -> Value:
        return self.evaluate(node.value, frame)

    def _eval_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        frame.env[node.target.id] = value
        return value

    def _eval_Yield(self, node: ast.Yield, frame: Frame) -> Value:
        frame.yields.append(self.evaluate(node.value, frame) if node.value else Const(None))
        return Unknown("sent value")

    def _eval_YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        frame.yields.extend(self.iterate(value) or [Elem(value, -1)])
        return Unknown("sent value")

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        raise NotImplementedError

    def _eval_Call(self, node: ast.Call, frame: Frame) -> Value:
        raise NotImplementedError
