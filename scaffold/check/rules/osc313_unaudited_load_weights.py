"""``load_weights`` of the rollout adapter may return None.

vllm-omni compares the names that ``load_weights`` returns with the parameters of the engine and stops where one was
not filled. A method that returns nothing skips this audit: weights that were never loaded stay random, and the
rollout makes noise that the reward model scores.

    def load_weights(self, weights):
        super().load_weights(weights)          # the result is dropped

Instead: return the set of names that were loaded, on every path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC313"
NAME = "unaudited-load-weights"
SEVERITY = "error"
CHECKLIST = ("pitfall 24",)
APPLIES = Applies()
HELP = "return the set of parameter names that were filled, what super().load_weights() returns included"


def check(package: Package) -> Hits:
    """Look at every path out of ``load_weights``."""
    for adapter in package.rollout_adapters:
        method = adapter.method("load_weights")
        if method is None or method.is_abstract or _is_generator(method):
            continue
        for statement in method.returns:
            given = statement.value if statement.value is not None else ast.Constant(value=None)
            for written, value in _possible_values(method, given):
                if isinstance(value, ast.Constant) and value.value is None:
                    where = statement if written is given else written
                    yield Hit(method.file, where, f"{adapter.name}.load_weights() returns None here")
        if _falls_off(method.node.body):
            yield Hit(
                method.file, method.node, f"{adapter.name}.load_weights() can end without returning the names it loaded"
            )


def _is_generator(method: FunctionModel) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in method.file.index.own(method.node))


def _falls_off(body: list[ast.stmt]) -> bool:
    """Whether execution can get to the end of a block."""
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or _falls_off(last.body) or _falls_off(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _falls_off(last.body)
    if isinstance(last, ast.Try):
        if last.finalbody and not _falls_off(last.finalbody):
            return False
        return _falls_off(last.orelse or last.body) or any(_falls_off(handler.body) for handler in last.handlers)
    if isinstance(last, ast.While):
        endless = isinstance(last.test, ast.Constant) and bool(last.test.value)
        return not (endless and not any(isinstance(node, ast.Break) for node in ast.walk(last)))
    return True


FAILING = (
    Example(
        "one path returns nothing",
        rollout=("> set[str]:\n", "> set[str]:\n        if not weights:\n            «return»\n"),
    ),
)
PASSING = (
    Example(
        "every branch returns",
        rollout=(
            "        return super",
            "        if not weights:\n            return set()\n        else:\n            return super",
        ),
    ),
)


def _possible_values(function: FunctionModel, expr: ast.expr, depth: int = 0) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what an expression of a function may stand for.

    ``a if test else b`` and ``a or b`` are their parts; a local name is what the assignments that reach it give it.

    Yields:
        where it is written, and what stands there with names followed; a name that is not plain stands for itself.
    """
    if depth > 8:
        yield expr, expr
    elif isinstance(expr, ast.IfExp):
        yield from _possible_values(function, expr.body, depth + 1)
        yield from _possible_values(function, expr.orelse, depth + 1)
    elif isinstance(expr, ast.BoolOp) and isinstance(expr.op, ast.Or):
        for value in expr.values:
            yield from _possible_values(function, value, depth + 1)
    elif isinstance(expr, ast.Name):
        values = [b.value if b.kind == "variable" else None for b in reaching(function, expr)]
        found = [arm for value in values if value is not None for arm in _possible_values(function, value, depth + 1)]
        if not values or None in values:
            yield expr, expr
        elif len(found) == 1:
            yield expr, found[0][1]
        else:
            yield from found
    else:
        yield expr, expr
