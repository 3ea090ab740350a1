"""The rollout asks the pipeline for another number of steps than the release needs.

vllm-omni 0.22 took one step more than it was asked for, 0.24 and later do not. A correction that stayed behind after
the release changed puts the rollout one step off: the log-probs are biased by 500 times the clip range. Whether both
sides walk one schedule, `verify` measures (``schedule-diffusers-0.38.0``).

    params.num_inference_steps = steps + 1              # vllm-omni 0.22 runs one step less

Instead: ask for what the recipe says, where the release that is pinned takes it so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.facts import numbers
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.syntax import keyword_of

ID = "OSC309"
NAME = "stale-step-compensation"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 5")
APPLIES = Applies(objective="policy_gradient")
HELP = "let rollout and training take the same number of steps on the installed release"
STEPS = "num_inference_steps"
_SPEAKS = (b"0.22", b"0_22", b"ompensat")


def check(package: Package) -> Hits:
    """Compare what is added to the number of steps with what the release needs."""
    side = side_of(package, "rollout")
    needed = _needed(package, side)
    for function in side.functions if needed is not None else ():
        for node, value in _handed(function):
            offset = _offset(side, function, value)
            # An assignment with nothing added puts the number back; it hands nothing to the pipeline.
            if offset not in (0, needed, None) and "version" not in _tests(function, node):
                version = ".".join(map(str, package.release or ()))
                text = f"{STEPS} {offset:+d} is handed to the pipeline; vllm-omni {version} needs {needed:+d}"
                yield Hit(function.file, node, text)


def _needed(package: Package, side: Side) -> int | None:
    """Return what has to be added for the installed release; None where that is not known."""
    installed = package.release
    made_for = numbers(package.facts.text("upstream", "version"))
    offset = package.facts.number("schedule", "request_offset")
    if installed is None:
        return None
    if offset is not None and made_for is not None:
        if made_for == installed or (made_for >= (0, 24) and installed >= (0, 24)):
            return offset
        return 0 if installed >= (0, 24) else None
    spoken = any(mark in function.file.data for function in side.functions for mark in _SPEAKS)
    return 0 if spoken and installed >= (0, 24) else None


def _handed(function: FunctionModel) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Yield where a number of steps is put into a request, with the value."""
    index = function.file.index
    for assigned in index.nodes(ast.Assign, function.node):
        if any(isinstance(target, ast.Attribute) and target.attr == STEPS for target in assigned.targets):
            yield assigned.value, assigned.value
    for added in index.nodes(ast.AugAssign, function.node):
        if isinstance(added.target, ast.Attribute) and added.target.attr == STEPS:
            yield added, ast.BinOp(ast.Constant(0), added.op, added.value)
    for call in function.calls:
        value = keyword_of(call, STEPS)
        if value is not None:
            yield value, value


def _offset(side: Side, function: FunctionModel, value: ast.AST, hops: int = 5) -> int | None:
    """Return what is added to a number of steps; None where the text does not tell."""
    if not hops:
        return None
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        number = function.file.value(value.right)
        sign = 1 if isinstance(value.op, ast.Add) else -1
        inner = _offset(side, function, value.left, hops - 1)
        return inner + sign * number if isinstance(number, int) and inner is not None else None
    if isinstance(value, ast.IfExp):
        arms = {_offset(side, function, arm, hops - 1) for arm in (value.body, value.orelse)} - {0}
        return arms.pop() if len(arms) == 1 else None if arms else 0
    if isinstance(value, ast.Name):
        values = [binding.value for binding in reaching(function, value)]
        return _offset(side, function, values[0], hops - 1) if len(values) == 1 and values[0] is not None else 0
    if isinstance(value, ast.Call):
        called = side.called(function, value)
        if called is not None:
            return _offset(side, called, called.returns[0].value or value, hops - 1) if called.returns else None
        return _offset(side, function, value.args[0], hops - 1) if value.args else None
    return 0 if isinstance(value, (ast.Attribute, ast.Subscript, ast.Constant)) else None


def _tests(function: FunctionModel, node: ast.AST) -> str:
    outer = function.file.index.ancestors(node)
    return " ".join(ast.unparse(one.test) for one in outer if isinstance(one, (ast.If, ast.IfExp))).lower()


FAILING = (
    Example(
        "a correction for 0.22 left in place",
        rollout=(
            ")\n        output",
            ")\n        # vllm-omni 0.22 takes one step more.\n        params.num_inference_steps = «int(params.num_inference_steps) - 1»\n        output",
        ),
    ),
)
PASSING = (
    Example(
        "as many points as the release takes",
        spec=(
            "schema = 1\n\n[upstream]\n"
            'version = "0.27.0rc1"\nsteps = "n"\n'
            "\n[schedule]\n"
            'steps = "n"\n'
            "request_offset = 0\n"
        ),
        common=("max(num_inference_steps, 2)", "num_inference_steps + 1"),
    ),
)
