"""SDE sampling as the adapters write it: scheduler steps, their options, the window, lists that record the steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

_OPTIONS = {"noise_level", "sde_type", "return_logprobs", "prev_sample", "return_sqrt_dt", "include_logprob_normalizer"}
# Positions of the arguments in FlowMatchSDEDiscreteScheduler.
STEP = ("model_output", "timestep", "sample")
SAMPLE_PREVIOUS_STEP = ("sample", "model_output", "timestep", "generator", "per_token_timesteps", "noise_level")


@dataclass(frozen=True)
class Option:
    """A value that code gives to a named option: keyword argument, key of a dictionary, ``d["name"] = …``.

    Attributes:
        function: where.
        node: the keyword's or the key's node.
        value: what is given.
        call: the call whose keyword it is; None for dictionaries.
    """

    function: FunctionModel
    node: ast.AST
    value: ast.expr
    call: ast.Call | None = None


def sampling_calls(side: Side) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield the calls of the SDE scheduler's ``step`` and ``sample_previous_step``."""
    for function, call in side.calls("step", "sample_previous_step"):
        target = call.func
        if not isinstance(target, ast.Attribute):
            continue
        if isinstance(target.value, ast.Call) and isinstance(target.value.func, ast.Name):
            if target.value.func.id == "super":
                continue
        names = {item.arg for item in call.keywords}
        if target.attr == "sample_previous_step" or names & _OPTIONS or "model_output" in names or None in names:
            yield function, call


def sampling_argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return an argument of one of the `sampling_calls`, by keyword or position."""
    for item in call.keywords:
        if item.arg == name:
            return item.value
    target = call.func
    places = STEP if isinstance(target, ast.Attribute) and target.attr == "step" else SAMPLE_PREVIOUS_STEP
    at = places.index(name) if name in places else len(call.args)
    if at < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: at + 1]):
        return call.args[at]
    return None


def options(side: Side, name: str) -> list[Option]:
    """Return every value that a side gives to an option."""
    found = []
    for function in side.functions:
        index = function.file.index
        for call in function.calls:
            found += [Option(function, item, item.value, call) for item in call.keywords if item.arg == name]
        for node in index.nodes(ast.Dict, function.node):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    found.append(Option(function, key, value))
        for statement in index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and _is(target.slice, name):
                    found.append(Option(function, target.slice, statement.value))
    return found


def of_window(words: set[str]) -> bool:
    """Whether names and strings speak of the SDE window."""
    return any("window" in word.lower() for word in words)


def gated(side: Side, function: FunctionModel, node: ast.AST) -> bool:
    """Whether a node is only reached inside the SDE window: an ``if`` around it compares with the window."""
    index = function.file.index
    inner = node
    for outer in index.ancestors(node):
        if outer is function.node:
            return False
        if isinstance(outer, (ast.If, ast.IfExp)) and not index.contains(outer.test, inner):
            found = origin(side, function, outer.test)
            if of_window(found.words) and any(isinstance(n, ast.Compare) for _, _, n in found.nodes):
                return True
        inner = outer
    return False


def log_probs_gated(side: Side) -> bool:
    """Whether the scheduler is asked for log-probs only inside the window."""
    for option in options(side, "return_logprobs"):
        found = origin(side, option.function, option.value)
        compared = any(isinstance(node, ast.Compare) for _, _, node in found.nodes)
        if (compared and of_window(found.words)) or (
            isinstance(option.value, ast.Constant)
            and option.value.value is False
            and gated(side, option.function, option.value)
        ):
            return True
    return False


def appended(side: Side, function: FunctionModel, node: ast.AST) -> list[tuple[FunctionModel, ast.Call]]:
    """Return the ``append`` calls of the list that a name or ``self.name`` in a function is."""
    if isinstance(node, ast.Name):
        around = [function]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == function.bound:
        cls = side.receiver(function)
        around = [other for other in side.functions if cls is not None and other.cls in cls.mro]
    else:
        return []
    name = node.id if isinstance(node, ast.Name) else node.attr
    found = []
    for other in around:
        for call in other.calls:
            target = call.func
            if isinstance(target, ast.Attribute) and target.attr == "append":
                if _same(target.value, name, isinstance(node, ast.Attribute), other):
                    found.append((other, call))
    return found


def _same(node: ast.expr, name: str, attribute: bool, function: FunctionModel) -> bool:
    if attribute:
        return (
            isinstance(node, ast.Attribute)
            and node.attr == name
            and isinstance(node.value, ast.Name)
            and node.value.id == function.bound
        )
    return isinstance(node, ast.Name) and node.id == name


def _is(node: ast.AST, value: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == value
