"""The rollout adapter cuts by the SDE window what was recorded only inside the window.

A scheduler that records inside the window already holds one entry a step of the window. Slicing that once more with
the window's indices takes entries off: a window [1, 4) loses one of its three log-probs, [3, 5) loses all of them.
What is left belongs to other steps than the latents beside it, so the importance ratio compares unlike things.

    if begin <= index < end:
        self.log_probs.append(log_prob)
    …
    log_probs = torch.stack(self.log_probs, dim=1)[:, begin:end]

Instead: record inside the window and return the record as it is, or record every step and slice once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import follow
from scaffold.check.model.dataflow import origin
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sde import appended, gated, log_probs_gated, of_window
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC307"
NAME = "window-sliced-twice"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 2")
APPLIES = Applies(objective="policy_gradient")
HELP = "return what was recorded inside the window without slicing it again"
_FILLERS = {"zeros", "zeros_like", "new_zeros", "full", "full_like", "new_full"}


def check(package: Package) -> Hits:
    """Look at every slice whose start comes from the window."""
    side = side_of(package, "rollout")
    only_inside = log_probs_gated(side)
    for function in side.functions:
        for node, value, lower in _slices(function):
            if not of_window(origin(side, function, lower).words):
                continue
            what = _recorded_inside(side, function, value, only_inside)
            if what is not None:
                yield Hit(
                    function.file,
                    node,
                    f"{what} hold the steps of the SDE window only, and are cut by the window again",
                )


def _slices(function: FunctionModel) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Yield ``(node, what is cut, where the piece begins)``."""
    index = function.file.index
    for node in index.nodes(ast.Subscript, function.node):
        if not isinstance(node.ctx, ast.Load):
            continue
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            part = follow(function.file, part)
            if isinstance(part, ast.Slice) and part.lower is not None:
                yield node, node.value, part.lower
            elif isinstance(part, ast.Call) and function.file.qualified(part.func) == "slice" and part.args:
                first = part.args[0]
                yield node, node.value, first.value if isinstance(first, ast.Starred) else first
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "narrow" and len(call.args) >= 2:
            yield call, call.func.value, call.args[1]


def _recorded_inside(side: Side, function: FunctionModel, value: ast.expr, only_inside: bool) -> str | None:
    """Return what was recorded inside the window only, where that is certain."""
    found = origin(side, function, value)
    lists = []
    for around, _, node in found.nodes:
        if around is not None and isinstance(node, (ast.Name, ast.Attribute)):
            calls = appended(side, around, node)
            if calls:
                lists.append((node, calls))
    if lists:
        node, calls = lists[0]
        if len({ast.dump(other) for other, _ in lists}) != 1:
            return None
        if all(gated(side, around, call) or (only_inside and _of_log_prob(call)) for around, call in calls):
            return f"the entries of {ast.unparse(node)}"
        return None
    if only_inside and any("log_prob" in word or "logprob" in word for word in found.words) and not _filled(side):
        return "the log-probs"
    return None


def _of_log_prob(call: ast.Call) -> bool:
    return any("log_prob" in ast.unparse(argument) for argument in call.args)


def _filled(side: Side) -> bool:
    """Whether the adapter puts something in the place of log-probs that were not asked for."""
    return any(True for _ in side.calls(*_FILLERS))


FAILING = (
    Example(
        "the stack is cut",
        rollout=("torch.stack(self._log_probs, dim=1)", "«torch.stack(self._log_probs, dim=1)[:, begin:end]»"),
    ),
    Example("cut in forward", rollout=("=log_probs", "=«log_probs[:, window[0] : window[1]]»")),
)
PASSING = (
    Example(
        "the upstream pipeline's timesteps are whole",
        rollout=("=timesteps", "=output.timesteps[window[0] : window[1]]"),
    ),
)
