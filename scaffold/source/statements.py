"""Execution of each kind of statement; each function tells whether execution continues behind it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from scaffold.source.frame import Frame, closure_of, replace_env
from scaffold.source.modules import Import, ModuleGraph
from scaffold.source.values import ClassRef, Func

if TYPE_CHECKING:
    from scaffold.source.interpreter import Interpreter


def _expression(run: Interpreter, node: ast.Expr, frame: Frame) -> bool:
    if not isinstance(node.value, ast.Constant):
        run.evaluate(node.value, frame)
    return True


def _assign(run: Interpreter, node: ast.Assign, frame: Frame) -> bool:
    value = run.evaluate(node.value, frame)
    for target in node.targets:
        run.assign(target, value, frame)
    return True


def _annotated(run: Interpreter, node: ast.AnnAssign, frame: Frame) -> bool:
    if node.value is not None:
        run.assign(node.target, run.evaluate(node.value, frame), frame)
    return True


def _augmented(run: Interpreter, node: ast.AugAssign, frame: Frame) -> bool:
    old = run.evaluate(_as_load(node.target), frame)
    value = run.evaluate(node.value, frame)
    if not run.domain.grow(type(node.op), old, value):
        run.assign(node.target, run.domain.operate(type(node.op), [old, value], run.domain.place(node, frame)), frame)
    return True


def _as_load(node: ast.expr) -> ast.expr:
    read: ast.expr = node
    if isinstance(node, ast.Name):
        read = ast.Name(node.id, ast.Load())
    elif isinstance(node, ast.Attribute):
        read = ast.Attribute(node.value, node.attr, ast.Load())
    elif isinstance(node, ast.Subscript):
        read = ast.Subscript(node.value, node.slice, ast.Load())
    return ast.copy_location(read, node)


def _return(run: Interpreter, node: ast.Return, frame: Frame) -> bool:
    value = run.evaluate(node.value, frame) if node.value is not None else run.domain.constant(None, None)
    frame.returns.append((value, tuple(run.path.conditions[frame.outside :])))
    run.domain.leaves(node, value, frame)
    return False


def _raise(run: Interpreter, node: ast.Raise, frame: Frame) -> bool:
    run.domain.raises(node, frame)
    return False


def _break(run: Interpreter, node: ast.Break, frame: Frame) -> bool:
    if frame.loops:
        frame.loops[-1].breaks.append(dict(frame.env))
    return False


def _continue(run: Interpreter, node: ast.Continue, frame: Frame) -> bool:
    if frame.loops:
        frame.loops[-1].continues.append(dict(frame.env))
    run.domain.leaves(node, None, frame)
    return False


def _if(run: Interpreter, node: ast.If, frame: Frame) -> bool:
    return run.domain.branch(node, run.evaluate(node.test, frame), frame)


def _for(run: Interpreter, node: ast.For, frame: Frame) -> bool:
    source = run.evaluate(node.iter, frame)
    turns = run.domain.turns(node, source)
    return run.domain.open_loop(node, source, frame) if turns is None else run.unroll(node, turns, frame)


def _while(run: Interpreter, node: ast.While, frame: Frame) -> bool:
    cond = run.evaluate(node.test, frame)
    truth = run.domain.decide(cond)
    if truth is False:
        return run.block(node.orelse, frame)
    return run.domain.open_loop(node, cond, frame)


def _with(run: Interpreter, node: ast.With | ast.AsyncWith, frame: Frame) -> bool:
    for item in node.items:
        value = run.evaluate(item.context_expr, frame)
        if item.optional_vars is not None:
            run.assign(item.optional_vars, value, frame)
    return run.block(node.body, frame)


def _try(run: Interpreter, node: ast.Try, frame: Frame) -> bool:
    alive = run.block(node.body, frame)
    if alive:
        alive = run.block(node.orelse, frame)
    return run.block(node.finalbody, frame) and alive


def _function(run: Interpreter, node: ast.FunctionDef, frame: Frame) -> bool:
    at = run.domain.place(node, frame)
    frame.env[node.name] = Func(node, frame.module, frame.owner, None, closure_of(frame), at=at)
    return True


def _class(run: Interpreter, node: ast.ClassDef, frame: Frame) -> bool:
    frame.env[node.name] = ClassRef(run.scopes.classes.get(node, frame.module), at=run.domain.place(node, frame))
    return True


def _import(run: Interpreter, node: ast.Import | ast.ImportFrom, frame: Frame) -> bool:
    bound: dict[str, Import] = {}
    ModuleGraph.bind_imports(frame.module, node, bound)
    for name, target in bound.items():
        frame.env[name] = run.scopes.imported(target)
    return True


def unroll(run: Interpreter, node: ast.For | ast.AsyncFor | ast.While, turns: Iterable[Any], frame: Frame) -> bool:
    """Execute a loop turn by turn."""
    context, path = run.open_context(frame), run.path
    alive = True
    pushed, depth = len(path.conditions), path.depth
    for turn in turns:
        if not isinstance(node, ast.While):
            run.assign(node.target, turn, frame)
        path.rows.append(turn)
        context.continues = []
        falls = run.block(node.body, frame)
        path.rows.pop()
        if context.continues:
            ends = [*([dict(frame.env)] if falls else []), *context.continues]
            replace_env(frame.env, ends[0] if len(ends) == 1 else run.domain.merge(ends))
        elif not falls:
            alive = False
            break
        if context.breaks:
            path.depth = depth + 1
    del path.conditions[pushed:]
    path.depth = depth
    frame.loops.pop()
    if alive:
        alive = run.block(node.orelse, frame) or bool(context.breaks)
    elif context.breaks:
        alive = True
        frame.env.clear()
    if context.breaks:
        replace_env(frame.env, run.domain.merge([frame.env, *context.breaks] if frame.env else context.breaks))
    return alive


STATEMENTS: Mapping[type[ast.AST], Callable[[Interpreter, Any, Frame], bool]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.FunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
}
