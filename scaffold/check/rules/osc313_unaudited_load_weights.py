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

from scaffold.check.example import Example
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.rule import Hit, Hits

ID = "OSC313"
NAME = "unaudited-load-weights"
SEVERITY = "error"
CHECKLIST = ("pitfall 24",)
HELP = "return the set of parameter names that were filled, what super().load_weights() returns included"


def check(package: Package) -> Hits:
    """Look at every path out of ``load_weights``."""
    for adapter in package.rollout_adapters:
        method = adapter.method("load_weights")
        if method is None or method.is_abstract or _is_generator(method):
            continue
        for statement in method.returns:
            if statement.value is None or _may_be_none(method, statement.value):
                yield Hit(method.file, statement, f"{adapter.name}.load_weights() returns None here")
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
    return True


def _may_be_none(method: FunctionModel, value: ast.expr, hops: int = 8) -> bool:
    """Whether an expression is None, as it stands or by a local name of which every assignment is plain."""
    if isinstance(value, ast.IfExp):
        return _may_be_none(method, value.body, hops) or _may_be_none(method, value.orelse, hops)
    if isinstance(value, ast.Name) and hops:
        values = [found.value if found.kind == "variable" else None for found in reaching(method, value)]
        return all(values) and any(_may_be_none(method, one, hops - 1) for one in values if one is not None)
    return isinstance(value, ast.Constant) and value.value is None


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
