"""A pipeline that is the model of its own loop: what the loop always tells it, which call is first, what it takes."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.values import Const, Index, Obj, Op
from scaffold.inspect.questions.denoiser import find_denoiser, is_own_model
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Value

ORDER = 12
KEYS = ("detail.model.constants", "detail.model.first", "detail.model.output", "detail.model.tokenizer")


def answers(program: Program) -> dict[str, Fact]:
    """Return nothing where the model is an object of its own.

    ``constants`` are arguments that have the same plain value in every call, ``first`` is the argument that says
    whether a call is the first of a loop, ``output`` the key under which the loop finds the prediction, ``tokenizer``
    the path to the tokenizer, where an object of the pipeline's keeps it.
    """
    found = find_denoiser(program)
    if found is None or not is_own_model(program, found):
        return {}
    at = [found.record.at]
    given = found.record.bound
    plain = {name: v.value for name, v in given.items() if isinstance(v, Const) and _is_plain(v.value)}
    facts = {"detail.model.constants": fact(plain, at)}
    first = [name for name, value in given.items() if _is_first(value)]
    if len(first) == 1:
        facts["detail.model.first"] = fact(first[0], at)
    facts |= _tokenizer(program)
    assert program.denoising is not None
    line = found.record.at.line if found.record.at is not None else 0
    taken = _taken(program.denoising.loop.node, line)
    if taken is not None:
        facts["detail.model.output"] = fact(taken, at)
    return facts


def _tokenizer(program: Program) -> dict[str, Fact]:
    if "tokenizer" in program.pipeline.attrs:
        return {}
    found = []
    for name, value in program.pipeline.attrs.items():
        if isinstance(value, Obj) and value.cls.find_method("__init__") is not None:
            program.execution.attributes.ensure_ready(value)
            if "tokenizer" in value.attrs:
                found.append((f"{name}.tokenizer", value.at))
    return {"detail.model.tokenizer": fact(found[0][0], [found[0][1]])} if len(found) == 1 else {}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_first(value: Value) -> bool:
    """Whether a value is ``i == 0`` for the number of the turn."""
    if not isinstance(value, Op) or value.op != "==" or len(value.args) != 2:
        return False
    number, zero = value.args
    return isinstance(number, Index) and isinstance(zero, Const) and zero.value == 0


def _taken(loop: ast.AST, line: int) -> str | None:
    """The one key that the loop reads of what the call in a line returns."""
    names = {
        ast.unparse(node.targets[0])
        for node in walk_tree(loop)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.lineno == line
    }
    keys = {
        node.slice.value
        for node in walk_tree(loop)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and ast.unparse(node.value) in names
    }
    key = keys.pop() if len(keys) == 1 else None
    return key if isinstance(key, str) else None
