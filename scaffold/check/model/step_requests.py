"""Where a number of denoising steps is handed to the pipeline."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side
from scaffold.check.model.step_counts import NAME as STEPS
from scaffold.check.model.step_counts import Count, step_count


def handed_steps(side: Side, installed: tuple[int, int] | None = None) -> Iterator[tuple[FunctionModel, ast.AST, int]]:
    """Yield where a number of steps is put into a request, with what is added to it.

    Args:
        installed: major and minor number of the release that is there, which tests of the version are held against.
    """
    for function in side.functions:
        index = function.file.index
        for statement in index.nodes(ast.Assign, function.node):
            if any(isinstance(target, ast.Attribute) and target.attr == STEPS for target in statement.targets):
                count = _certain(function, step_count(side, function, statement.value), statement, installed)
                if count is not None:
                    yield function, statement.value, count.offset
        for change in index.nodes(ast.AugAssign, function.node):
            number = function.file.value(change.value)
            if isinstance(change.target, ast.Attribute) and change.target.attr == STEPS and isinstance(number, int):
                if isinstance(change.op, (ast.Add, ast.Sub)) and not _versioned(function, change, installed):
                    yield function, change, number if isinstance(change.op, ast.Add) else -number
        for call in function.calls:
            name = function.file.qualified(call.func) or ""
            if name in ("setattr", "dataclasses.replace", "copy.replace") or of_super(call):
                value = next((item.value for item in call.keywords if item.arg == STEPS), None)
                if name == "setattr" and len(call.args) == 3 and getattr(call.args[1], "value", None) == STEPS:
                    value = call.args[2]
                if value is not None:
                    count = _certain(function, step_count(side, function, value), call, installed)
                    if count is not None:
                        yield function, value, count.offset


def _certain(
    function: FunctionModel, count: Count | None, statement: ast.AST, installed: tuple[int, int] | None
) -> Count | None:
    return None if count is None or _versioned(function, statement, installed) else count


def _versioned(function: FunctionModel, node: ast.AST, installed: tuple[int, int] | None) -> bool:
    """Whether a test for the release stands around a node, other than one that this release certainly passes."""
    inner = node
    for outer in function.file.index.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp)) and "version" in ast.unparse(outer.test).lower():
            passed = _passed(function, outer.test, installed)
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            if passed is None or passed is not any(part is inner for part in body):
                return True
        inner = outer
    return False


def _passed(function: FunctionModel, test: ast.expr, installed: tuple[int, int] | None) -> bool | None:
    """Whether a release passes a comparison of ``__version__`` with a number; None where that is not plain."""
    if installed is None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    asked = ast.unparse(test.left)
    written = re.search(
        r"""["'](\d{1,9})\.(\d{1,9})[\w.]*["']|\((\d{1,9}), (\d{1,9})(?:, \d+)*\)""", ast.unparse(test.comparators[0])
    )
    if not re.search(r"vllm_omni\.__version__|version\(['\"]vllm[-_]omni['\"]\)", asked) or written is None:
        return None
    major, minor = (int(number) for number in written.groups() if number is not None)
    if installed == (major, minor):
        return None  # a pre-release, or a patch release, may be on either side
    if isinstance(test.ops[0], (ast.GtE, ast.Gt)):
        return installed > (major, minor)
    return installed < (major, minor) if isinstance(test.ops[0], (ast.LtE, ast.Lt)) else None


def of_super(call: ast.Call) -> bool:
    target = call.func
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Call)
        and (isinstance(target.value.func, ast.Name) and target.value.func.id == "super")
    )
