"""Evaluation of each kind of expression; the domain defines the values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from scaffold.source.frame import Frame, closure_of
from scaffold.source.values import Func, Super, Unknown

if TYPE_CHECKING:
    from scaffold.source.interpreter import Interpreter


def _constant(run: Interpreter, node: ast.Constant, frame: Frame) -> Any:
    return run.domain.constant(node.value, run.domain.place(node, frame))


def _name(run: Interpreter, node: ast.Name, frame: Frame) -> Any:
    name, env = node.id, frame.env
    if name in env:
        return env[name]
    if frame.closure is not None and name in frame.closure:
        return frame.closure[name]
    value = run.scopes.lookup(frame.module, name)
    return value if value is not None else run.domain.builtin(name, run.domain.place(node, frame))


def _attribute(run: Interpreter, node: ast.Attribute, frame: Frame) -> Any:
    return run.domain.get_attr(run.evaluate(node.value, frame), node.attr, run.domain.place(node, frame))


def _subscript(run: Interpreter, node: ast.Subscript, frame: Frame) -> Any:
    base = run.evaluate(node.value, frame)
    return run.domain.subscript(base, run.evaluate(node.slice, frame), node, frame)


def _slice(run: Interpreter, node: ast.Slice, frame: Frame) -> Any:
    parts = [run.evaluate(p, frame) if p is not None else None for p in (node.lower, node.upper, node.step)]
    return run.domain.slice(parts, run.domain.place(node, frame))


def _sequence(kind: str) -> Callable[[Interpreter, Any, Frame], Any]:
    def make(run: Interpreter, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Any:
        items, exact = run.items(node.elts, frame)
        return run.domain.sequence(kind, items, exact, run.domain.place(node, frame))

    return make


def _dict(run: Interpreter, node: ast.Dict, frame: Frame) -> Any:
    pairs: list[tuple[Any, Any]] = []
    for key, item in zip(node.keys, node.values, strict=True):
        value = run.evaluate(item, frame)
        pairs.append((None if key is None else run.evaluate(key, frame), value))
    return run.domain.table(pairs, run.domain.place(node, frame))


def _unary(run: Interpreter, node: ast.UnaryOp, frame: Frame) -> Any:
    return run.domain.operate(type(node.op), [run.evaluate(node.operand, frame)], run.domain.place(node, frame))


def _binary(run: Interpreter, node: ast.BinOp, frame: Frame) -> Any:
    args = [run.evaluate(node.left, frame), run.evaluate(node.right, frame)]
    return run.domain.operate(type(node.op), args, run.domain.place(node, frame))


def _boolean(run: Interpreter, node: ast.BoolOp, frame: Frame) -> Any:
    decisive = isinstance(node.op, ast.Or)
    kept: list[Any] = []
    for index, operand in enumerate(node.values):
        value = run.evaluate(operand, frame)
        truth = run.domain.decide(value)
        if truth is not None and run.domain.is_fixed(value):
            if truth is decisive:
                kept.append(value)
                break
            if index < len(node.values) - 1:
                continue
        kept.append(value)
    return kept[0] if len(kept) == 1 else run.domain.one_of(type(node.op), kept, run.domain.place(node, frame))


def _compare(run: Interpreter, node: ast.Compare, frame: Frame) -> Any:
    at = run.domain.place(node, frame)
    left = run.evaluate(node.left, frame)
    if len(node.ops) == 1:
        return run.domain.compare(type(node.ops[0]), left, run.evaluate(node.comparators[0], frame), at)
    parts: list[Any] = []
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = run.evaluate(comparator, frame)
        parts.append(run.domain.compare(type(op), left, right, at))
        if run.domain.decide(parts[-1]) is False:
            break
        left = right
    return parts[0] if len(parts) == 1 else run.domain.one_of(ast.And, parts, at)


def _if_expression(run: Interpreter, node: ast.IfExp, frame: Frame) -> Any:
    return run.domain.choose(node, run.evaluate(node.test, frame), frame)


def _text(run: Interpreter, node: ast.JoinedStr, frame: Frame) -> Any:
    parts = [run.evaluate(p.value if isinstance(p, ast.FormattedValue) else p, frame) for p in node.values]
    return run.domain.text(parts, node, run.domain.place(node, frame))


def _lambda(run: Interpreter, node: ast.Lambda, frame: Frame) -> Any:
    return Func(node, frame.module, frame.owner, None, closure_of(frame), at=run.domain.place(node, frame))


def _inner(run: Interpreter, node: ast.Starred | ast.Await, frame: Frame) -> Any:
    return run.evaluate(node.value, frame)


def _named(run: Interpreter, node: ast.NamedExpr, frame: Frame) -> Any:
    value = run.evaluate(node.value, frame)
    frame.env[node.target.id] = value
    return value


def _yield(run: Interpreter, node: ast.Yield, frame: Frame) -> Any:
    frame.yields.append(run.evaluate(node.value, frame) if node.value else run.domain.constant(None, None))
    return Unknown("sent value")


def _yield_from(run: Interpreter, node: ast.YieldFrom, frame: Frame) -> Any:
    value = run.evaluate(node.value, frame)
    frame.yields.extend(run.domain.iterate(value) or run.domain.open_items(value, None))
    return Unknown("sent value")


def _call(run: Interpreter, node: ast.Call, frame: Frame) -> Any:
    at, func = run.domain.place(node, frame), node.func
    if isinstance(func, ast.Name) and func.id == "super" and "super" not in frame.env:
        if frame.owner is not None and frame.bound is not None:
            return Super(frame.bound, frame.owner)
        return run.domain.builtin("super", at)
    if isinstance(func, ast.Attribute):
        receiver = run.evaluate(func.value, frame)
        args, kwargs = run.arguments(node, frame)
        return run.domain.call_method(receiver, func.attr, args, kwargs, at)
    args, kwargs = run.arguments(node, frame)
    return run.domain.call(run.evaluate(func, frame), args, kwargs, at)


def _collected(kind: str) -> Callable[[Interpreter, Any, Frame], Any]:
    def make(run: Interpreter, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Any:
        rows, exact = _rows(run, node.generators, [node.elt], frame)
        return run.domain.sequence(kind, [row[0] for row in rows], exact, run.domain.place(node, frame))

    return make


def _dict_comprehension(run: Interpreter, node: ast.DictComp, frame: Frame) -> Any:
    rows, exact = _rows(run, node.generators, [node.key, node.value], frame)
    return run.domain.mapping(rows, exact, run.domain.place(node, frame))


def _rows(
    run: Interpreter, generators: list[ast.comprehension], results: list[ast.expr], frame: Frame
) -> tuple[list[list[Any]], bool]:
    """Rows of result values, and whether they are exactly all."""
    scope = Frame(frame.module, frame.node, frame.owner, frame.bound, dict(frame.env), frame.closure)
    rows: list[list[Any]] = []
    depth = run.path.depth
    exact = _turn(run, generators, results, scope, rows)
    run.path.depth = depth
    return rows, exact


def _turn(
    run: Interpreter, generators: list[ast.comprehension], results: list[ast.expr], scope: Frame, rows: list[list[Any]]
) -> bool:
    if len(rows) > run.domain.most_rows:
        return False
    if not generators:
        rows.append([run.evaluate(r, scope) for r in results])
        return True
    generator, path = generators[0], run.path
    turns, exact = run.domain.rows(run.evaluate(generator.iter, scope), run.domain.place(generator.iter, scope))
    for turn in turns:
        run.assign(generator.target, turn, scope)
        pushed, keep = 0, True
        for test in generator.ifs:
            cond = run.evaluate(test, scope)
            truth = run.domain.decide(cond)
            if truth is False:
                keep = False
                break
            if truth is None:
                exact = False
                path.conditions.append((cond, True))
                pushed += 1
        if keep:
            path.depth += 0 if exact else 1
            exact = _turn(run, generators[1:], results, scope, rows) and exact
            path.depth -= 0 if exact else 1
        del path.conditions[len(path.conditions) - pushed :]
    return exact


EXPRESSIONS: Mapping[type[ast.AST], Callable[[Interpreter, Any, Frame], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _sequence("tuple"),
    ast.List: _sequence("list"),
    ast.Set: _sequence("set"),
    ast.Dict: _dict,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _if_expression,
    ast.JoinedStr: _text,
    ast.Lambda: _lambda,
    ast.Starred: _inner,
    ast.Await: _inner,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.Call: _call,
    ast.ListComp: _collected("list"),
    ast.SetComp: _collected("set"),
    ast.GeneratorExp: _collected("generator"),
    ast.DictComp: _dict_comprehension,
}
