"""Which flag of a denoiser chose the branch in which a request failed."""

from __future__ import annotations

import ast
import linecache
import traceback
from collections.abc import Iterator, Mapping
from typing import Any


def other_branch(error: BaseException, settings: Mapping[str, Any]) -> dict[str, bool]:
    """The flag, by name, with the value that leads past what failed; empty where no flag decided.

    A part of a model can ask for more than a small request has, a number of frames say. The innermost condition
    around a line of the traceback that names a setting which is true or false is the one that is turned.

    Args:
        error: with its traceback.
        settings: of the denoiser, by name; those that are not flags count for nothing.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.lineno is None:
            continue
        try:
            tree = ast.parse("".join(linecache.getlines(frame.filename)))
        except SyntaxError:
            continue
        for node, taken in reversed(list(_around(tree, frame.lineno))):
            for part in ast.walk(node):
                name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
                if settings.get(name) is taken:
                    return {name: not taken}
    return {}


def _around(tree: ast.AST, line: int) -> Iterator[tuple[ast.expr, bool]]:
    """Conditions around a line, from the outermost, each with whether it holds there."""
    for child in ast.iter_child_nodes(tree):
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is not None and last is not None and not first <= line <= last:
            continue
        if isinstance(child, ast.If):
            for part, taken in ((child.body, True), (child.orelse, False)):
                if part and part[0].lineno <= line <= (part[-1].end_lineno or 0):
                    yield child.test, taken
        yield from _around(child, line)
