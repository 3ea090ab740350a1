"""Tests of a checkpoint key in a loader: what they look for, and whether they alone decide that a key is skipped."""

from __future__ import annotations

import ast

from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.program import Program
from scaffold.inspect.program.trace import Skip
from scaffold.inspect.program.values import Call, Elem, Item, Map, Op, Param, Seq, Slice
from scaffold.inspect.weight_sources import text_of
from scaffold.source.syntax import around
from scaffold.source.values import External, Value

WEIGHTS = "weights"
_NAME_TESTS = ("startswith", "endswith")
_HOW = {"startswith": "prefix", "endswith": "suffix"}
_LOGS = ("logger", "logging", "log", "warnings", "print")


def from_checkpoint(value: Value) -> bool:
    """Whether a value derives from what is streamed out of the checkpoint."""
    return any(isinstance(n, Param) and n.root == WEIGHTS for n in walk(value))


def alternatives(cond: Value) -> list[Value]:
    """The parts of a condition that ``and`` and ``or`` put together."""
    if isinstance(cond, Op) and cond.op in ("or", "and"):
        return [a for part in cond.args for a in alternatives(part)]
    if isinstance(cond, Call) and cond.name == "any" and len(cond.args) == 1 and isinstance(cond.args[0], Seq):
        return [a for part in cond.args[0].items for a in alternatives(part)]
    return [cond]


def prefix_of(cond: Value) -> str | None:
    """The prefix that a test asks a checkpoint's name for."""
    if isinstance(cond, Call) and cond.name == "startswith" and cond.args and from_checkpoint(cond.func):
        return text_of(cond.args[0])
    return None


def tested(cond: Value) -> list[str]:
    """The texts any of which in a checkpoint's name makes a test true, where no other test of the name does."""
    if isinstance(cond, Op) and cond.op == "or":
        return [text for part in cond.args for text in tested(part)]
    if isinstance(cond, Op) and cond.op == "and":
        sides = [tested(part) for part in cond.args]
        named = [side for side in sides if side]
        others = [part for part, side in zip(cond.args, sides, strict=True) if not side]
        return named[0] if len(named) == 1 and not any(map(from_checkpoint, others)) else []
    found: list[str] = []
    for part in alternatives(cond):
        if isinstance(part, Call) and part.name in _NAME_TESTS and part.args and from_checkpoint(part.func):
            given = part.args[0]
            texts = [text_of(i) for i in given.items] if isinstance(given, Seq) else [text_of(given)]
            found += [t for t in texts if t]
        elif isinstance(part, Op) and part.op in ("in", "==") and len(part.args) == 2:
            text = text_of(part.args[0]) or text_of(part.args[1])
            if text and any(from_checkpoint(a) and _is_name(a) for a in part.args):
                found.append(text)
    return found


def _is_name(value: Value) -> bool:
    return not isinstance(value, (External, Map)) and not (isinstance(value, Param) and not value.key)


def certain_skip(program: Program, skip: Skip) -> list[tuple[str, str]]:
    """What a skip looks for and where in the key, if nothing but the key as the checkpoint has it decides.

    Nothing for a branch that does more than to report before it goes on: it may well take the weight.
    """
    if not _only_skips(program, skip):
        return []
    found: list[tuple[str, str]] | None = []
    for cond, truth in skip.conditions:
        tests = _name_tests(cond)
        if tests is None or (found and truth):
            return []
        found = tests if truth else found
    return found or []


def _only_skips(program: Program, skip: Skip) -> bool:
    """Whether the branch logs at the most, and then goes on to the next weight."""
    branches = (n for n in around(program.source.tree(skip.at.file), skip.at.line) if isinstance(n, ast.If))
    # The outermost where several end on the same line.
    node = next((n for n in branches if n.body[-1].lineno == skip.at.line), None)
    return (
        node is not None and isinstance(node.body[-1], (ast.Continue, ast.Return)) and all(map(_is_log, node.body[:-1]))
    )


def _is_log(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    func = node.value.func
    while isinstance(func, ast.Attribute):
        func = func.value
    return isinstance(func, ast.Name) and func.id in _LOGS


def _name_tests(cond: Value) -> list[tuple[str, str]] | None:
    """What a test of the unchanged key looks for and where; None where something else takes part."""
    if isinstance(cond, Op) and cond.op == "or":
        parts = [_name_tests(part) for part in cond.args]
        known = [part for part in parts if part is not None]
        return [test for part in known for test in part] if len(known) == len(parts) else None
    if isinstance(cond, Call) and cond.name in _NAME_TESTS and cond.args:
        given = cond.args[0]
        texts = [text_of(i) for i in given.items] if isinstance(given, Seq) else [text_of(given)]
        if _is_key(getattr(cond.func, "base", None)) and all(texts):
            return [(_HOW[cond.name], text) for text in texts if text]
    if isinstance(cond, Op) and cond.op in ("in", "==") and len(cond.args) == 2:
        first, second = cond.args
        if cond.op == "==" and _is_key(first) and text_of(second):
            return [("equal", text_of(second) or "")]
        if _is_key(second) and text_of(first):
            return [("contains" if cond.op == "in" else "equal", text_of(first) or "")]
    return None


def _is_key(value: object) -> bool:
    """Whether a value is the name in a pair that came out of the checkpoint, unchanged."""
    while isinstance(value, (Item, Elem)) and not (isinstance(value, Item) and isinstance(value.key, Slice)):
        value = value.base if isinstance(value, Item) else value.source
    return isinstance(value, Param) and value.root == WEIGHTS
