"""The expression that makes one prediction of several: what a package computes in place of the pipeline."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.guidance_conditions import UnclearError
from scaffold.inspect.guidance_expression import CONDITIONAL, UNCONDITIONAL, Writer
from scaffold.inspect.guidance_ways import Way, find_ways
from scaffold.inspect.program import Program
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.syntax import walk_tree

ORDER = 4
KEYS = ("detail.cfg.combination", "detail.cfg.stopped")
MOST = 3
"""Predictions that a package has room for."""
# What stands for the predictions where the expression is computed to see what it does: no sum of them is another.
_PROBES = (math.e, math.pi, math.sqrt(2.0), math.sqrt(3.0), math.log(2.0))
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def answers(program: Program) -> dict[str, Fact]:
    """``text`` over ``conditional``, ``unconditional`` and ``guidance``; how many ``unconditional``; ``settings``.

    One unconditional prediction is ``unconditional`` itself, several are its entries. Where all settings are
    ``neutral`` the conditional one is left; ``above`` is there where the pipeline makes no other up to that scale. A
    setting has a ``name``, a ``default`` and ``others``, names that the pipeline asks next. ``fewest`` is there where
    requests with reference images may be guided with more than one unconditional prediction: they are entries then,
    however many there are. Where an expression is not understood, ``stopped`` is ``at``, its place, and ``why``.
    """
    loop = program.denoising
    if loop is None or loop.model_output is None or loop.sample is None:
        return {}
    calls = _calls(program, loop)
    try:
        if program.with_references:
            ways, writer = find_ways(loop, calls)
            value = _of_ways(ways, writer)
        else:
            writer = Writer(loop, calls)
            tree = writer.tensor(loop.model_output, {})
            if _counts(tree):
                ways, writer = find_ways(loop, calls)
                value = _of_ways(ways, writer)
            else:
                value = _of_one(tree, writer)
    except UnclearError as error:
        if error.at is None:
            return {}
        line = program.source.read(error.at.file).splitlines()[error.at.line - 1].strip()
        stopped = {"at": f"{error.at.file}:{error.at.line}", "why": f"`{line}` is not followed"}
        return {KEYS[1]: fact(stopped, [error.at])}
    return {} if value is None else {KEYS[0]: fact(value, writer.places)}


def _counts(tree: ast.expr) -> bool:
    """Whether a setting decides how many predictions are made."""
    choices = [node for node in walk_tree(tree) if isinstance(node, ast.IfExp)]
    return any(len(_used(node.body)) != len(_used(node.orelse)) for node in choices)


def _of_one(tree: ast.expr, writer: Writer) -> dict[str, Any] | None:
    if isinstance(tree, ast.UnaryOp):
        tree = tree.operand  # a sign that the velocity has already
    used = _used(tree)
    settings = _settings(tree, writer)
    if not 2 <= len(used) <= MOST or not settings:
        return None
    first = _conditional(tree, used)
    if first is None or not writer.are_skipped([index for index in used if index != first[0]]):
        return None
    index, neutral = first
    above = {limit for limit in writer.gates(settings[0]["name"]) if limit > neutral}
    if len(above) > 1:
        return None  # which of them decides is not known
    text = ast.unparse(_named(tree, index, used))
    value = {"text": text, "unconditional": len(used) - 1, "neutral": neutral, "settings": settings}
    return {**value, "above": above.pop()} if above else value


def _of_ways(ways: list[Way], writer: Writer) -> dict[str, Any] | None:
    """One expression of all ways: how many predictions there are decides first, then the settings."""
    found: dict[int, dict[str, ast.expr | None]] = {}
    neutrals: dict[str, float] = {}
    most = max((len(_used(way.tree)) for way in ways), default=0) - 1
    # Where guidance is off, the conditional prediction is the only one.
    alone = writer.alone | {index for way in ways if isinstance(way.tree, ast.Name) for index in _used(way.tree)}
    for way in ways:
        used = _used(way.tree)
        if len(used) == 1 and isinstance(way.tree, ast.Name):
            continue
        first = _neutrals(way.tree, writer, alone)
        if not 2 <= len(used) <= MOST or first is None:
            return None
        if any(neutrals.setdefault(name, value) != value for name, value in first[1].items()):
            return None
        text = ast.unparse(_named(way.tree, first[0], used, entries=most > 1))
        found.setdefault(len(used) - 1, {}).setdefault(text, way.when)
    whole: ast.expr | None = None
    for count in sorted(found):
        made: ast.expr | None = None
        for text, when in reversed(found[count].items()):
            expression = ast.parse(text, mode="eval").body
            if made is not None and when is None:
                return None
            made = expression if made is None or when is None else ast.IfExp(when, expression, made)
        counted = ast.parse(f"len({UNCONDITIONAL}) == {count}", mode="eval").body
        assert made is not None
        whole = made if whole is None else ast.IfExp(counted, made, whole)
    settings = _settings(whole, writer) if whole is not None else []
    if whole is None or not settings:
        return None
    names = {setting["name"] for setting in settings}
    # What is on by default comes first; no scale stands in for another one.
    settings.sort(key=lambda setting: setting["default"] == neutrals.get(setting["name"]))
    settings = [{**setting, "others": [n for n in setting["others"] if n not in names]} for setting in settings]
    neutral = neutrals.get(settings[0]["name"])
    if neutral is None:
        return None
    text = ast.unparse(ast.fix_missing_locations(whole))
    value = {"text": text, "unconditional": most, "neutral": neutral, "settings": settings}
    return {**value, "fewest": min(found)} if most > 1 else value


def _used(tree: ast.expr) -> list[int]:
    return sorted({int(n.id[1:]) for n in walk_tree(tree) if isinstance(n, ast.Name) and n.id[1:].isdigit()})


def _settings(tree: ast.expr, writer: Writer) -> list[dict[str, Any]]:
    """The settings that an expression reads; none where the default of one is not known."""
    read = {
        n.slice.value for n in walk_tree(tree) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)
    }
    settings = [setting for setting in writer.settings if setting["name"] in read]
    return [] if any(setting["default"] is None for setting in settings) else settings


def _calls(program: Program, loop: Denoising) -> list[CallRecord]:
    """The calls of the denoiser in the loop."""
    found = find_denoiser(program)
    if found is None:
        return []
    records = [r for r in program.trace.calls if loop.number in r.loops and r.method == found.record.method]
    return [r for r in records if r.receiver is found.record.receiver and r.receiver is not None]


def _conditional(tree: ast.expr, used: list[int]) -> tuple[int, float] | None:
    """The prediction that is left where nothing guides, and the value of all scales there, which is 1 or 0."""
    if not _keeps_equal(tree):
        return None
    for scale in (1.0, 0.0):
        value = _computed(tree, scale)
        for index in used:
            if value is not None and math.isclose(value, _PROBES[index % len(_PROBES)], rel_tol=1e-12):
                return index, scale
    return None


def _neutrals(tree: ast.expr, writer: Writer, alone: set[int]) -> tuple[int, dict[str, float]] | None:
    """The prediction that is left where nothing guides, and each setting's value there, which is 1 or 0.

    Where it is ``alone``, settings may be neutral at different values: ``u + s (c - u) + d (c - w)`` is ``c`` where s
    is 1 and d is 0.
    """
    used, names = _used(tree), [setting["name"] for setting in _settings(tree, writer)]
    alone = alone & set(used)  # a way that makes predictions of its own has no part in the others
    first = _conditional(tree, used)
    if first is not None and (len(alone) != 1 or first[0] in alone):
        return first[0], dict.fromkeys(names, first[1])
    if len(alone) != 1 or len(names) > MOST or not _keeps_equal(tree):
        return None
    (index,) = alone
    for values in itertools.product((1.0, 0.0), repeat=len(names)):
        neutral = dict(zip(names, values, strict=True))
        value = _computed(tree, neutral)
        if value is not None and math.isclose(value, _PROBES[index % len(_PROBES)], rel_tol=1e-12):
            return index, neutral
    return None


def _keeps_equal(tree: ast.expr) -> bool:
    """Whether predictions that agree are left as they are, at any scale."""
    values = [_computed(tree, scale, _PROBES[:1]) for scale in (1.0, 0.0, 2.5)]
    return all(value is not None and math.isclose(value, _PROBES[0], rel_tol=1e-9) for value in values)


def _computed(node: ast.expr, scale: float | Mapping[str, float], probes: Sequence[float] = _PROBES) -> float | None:
    """The expression with numbers for its predictions, and one for every setting, or one each; a renormalised one is
    itself."""
    inner: list[float | None]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.Name):
        return probes[int(node.id[1:]) % len(probes)]
    if isinstance(node, ast.Subscript):
        return scale if isinstance(scale, float) else scale.get(ast.literal_eval(node.slice))
    if isinstance(node, ast.IfExp):
        return _computed(node.body if _holds(node.test, scale) else node.orelse, scale, probes)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _computed(node.operand, scale, probes)
        return None if value is None else -value
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        inner = [_computed(a, scale, probes) for a in node.args]
        if name == "lerp" and len(inner) == 3 and None not in inner:
            start, end, weight = (float(v or 0.0) for v in inner)
            return start + weight * (end - start)
        return abs(inner[0]) if name in ("vector_norm", "std") and inner and inner[0] is not None else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _computed(node.left, scale, probes), _computed(node.right, scale, probes)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Div):
        return left / right if right else None
    signs = {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}
    return signs.get(type(node.op))


def _holds(test: ast.expr, scale: float | Mapping[str, float]) -> bool:
    """Whether a comparison of settings holds where all of them have one value; a flag is off."""
    if not isinstance(test, ast.Compare):
        return False
    left, right = _computed(test.left, scale), _computed(test.comparators[0], scale)
    return None not in (left, right) and bool(_COMPARISONS[type(test.ops[0])](left, right))


class _Names(ast.NodeTransformer):
    def __init__(self, first: int, used: list[int], entries: bool) -> None:
        rest = [index for index in used if index != first]
        self.names: dict[str, ast.expr] = {f"p{first}": ast.Name(CONDITIONAL, ast.Load())}
        for place, index in enumerate(rest):
            entry: ast.expr = ast.Name(UNCONDITIONAL, ast.Load())
            if entries:
                entry = ast.Subscript(entry, ast.Constant(place), ast.Load())
            self.names[f"p{index}"] = entry

    def visit_Name(self, node: ast.Name) -> Any:
        return self.names.get(node.id, node)


def _named(tree: ast.expr, first: int, used: list[int], entries: bool = False) -> ast.expr:
    """The expression with the predictions under the names that they have in a package."""
    named = _Names(first, used, entries or len(used) > 2).visit(tree)
    assert isinstance(named, ast.expr)
    return ast.fix_missing_locations(named)
