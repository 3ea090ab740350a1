"""Steps outside of the SDE window get noise, or their log-probs are recorded.

Outside of the window a step is deterministic: with noise there, rewards scatter because of steps that nobody trains
on. Recorded there, a log-prob belongs to no trained step; without noise it is even ``-inf``, and the trajectory has
more entries than timesteps.

    self.inner.step(…, noise_level=noise_level)          # whether the step is inside or not

Instead: ``noise_level if inside else 0.0``, and record latents and log-probs inside only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import (
    appended,
    asks_for_window,
    gated,
    log_probs_gated,
    of_window,
    options,
    sampling_argument,
    sampling_calls,
)
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC317"
NAME = "logprob-outside-window"
SEVERITY = "error"
CHECKLIST = ("R6",)
APPLIES = Applies(objective="policy_gradient")
HELP = "step with noise_level 0 outside of the window, and record log-probs inside only"
RESULT = "trajectory_log_probs"


def check(package: Package) -> Hits:
    """Look for a zero noise level outside of the window, and for what decides whether a log-prob is recorded."""
    side = side_of(package, "rollout")
    calls = list(sampling_calls(side))
    if not calls or not any(of_window(_words(function)) for function in side.functions):
        return
    if not any(_zero_outside(side, function) for function in side.functions) and not _scaled(side):
        for function, call in calls:
            yield Hit(function.file, call.func, "noise is added in every step, not in the window's alone")
    for function in side.functions:
        if (choice := _zero_inside(side, function)) is not None:
            yield Hit(function.file, choice, "the window's own steps get no noise, those outside of it do")
    only_inside = log_probs_gated(side)
    for function, call in _recorded(side):
        if only_inside and _asks_for_none(function, call):
            continue
        if not gated(side, function, call) and not _cut(side):
            yield Hit(function.file, call, "log-probs are recorded in every step, not in the window's alone")


def _words(function: FunctionModel) -> set[str]:
    index = function.file.index
    words = {node.attr for node in index.nodes(ast.Attribute, function.node)} | set(function.parameters)
    words |= {node.value for node in index.nodes(ast.Constant, function.node) if isinstance(node.value, str)}
    return words | {node.id for node in index.nodes(ast.Name, function.node)}


def _is_zero(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, 0.0) and not isinstance(node.value, bool)


def _zero_outside(side: Side, function: FunctionModel) -> bool:
    """Whether a function chooses zero where the window does not hold."""
    index = function.file.index
    for choice in index.nodes(ast.IfExp, function.node):
        zeros = [node for part in (choice.body, choice.orelse) for node in index.walk(part) if _is_zero(node)]
        if zeros and asks_for_window(side, function, choice.test):
            return True
    for test in index.nodes(ast.If, function.node):
        zeros = [node for part in (*test.body, *test.orelse) for node in index.walk(part) if _is_zero(node)]
        if any(_for_noise(function, node) for node in zeros) and asks_for_window(side, function, test.test):
            return True
    return False


def _zero_inside(side: Side, function: FunctionModel) -> ast.expr | None:
    """Return a choice that takes zero where the window holds, and the level where it does not."""
    index = function.file.index
    for choice in index.nodes(ast.IfExp, function.node):
        inside = any(_is_zero(n) and _for_noise(function, n) for n in index.walk(choice.body))
        inside = inside or _noise_keys(choice.body)
        outside = _noise_keys(choice.orelse) or any(_is_zero(n) for n in index.walk(choice.orelse))
        test = choice.test
        plain = not any(isinstance(n, (ast.UnaryOp, ast.Or)) for n in index.walk(test)) and not _turned(function, test)
        if inside and not outside and plain and asks_for_window(side, function, test):
            return choice
    return None


def _noise_keys(value: ast.expr) -> bool:
    """Whether a dictionary sets the noise level to zero."""
    pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
    return any(isinstance(k, ast.Constant) and "noise" in str(k.value) and _is_zero(v) for k, v in pairs)


def _turned(function: FunctionModel, test: ast.expr) -> bool:
    """Whether a test is a name that stands for being outside of the window."""
    words = [node.id for node in function.file.index.walk(test) if isinstance(node, ast.Name)]
    if any("out" in word.lower() for word in words):
        return True
    bound = [b.value for n in function.file.index.walk(test) if isinstance(n, ast.Name) for b in reaching(function, n)]
    return any(isinstance(value, (ast.UnaryOp, ast.BoolOp)) for value in bound)


def _for_noise(function: FunctionModel, node: ast.AST) -> bool:
    """Whether a zero is given to something that is called noise."""
    for outer in function.file.index.ancestors(node):
        if isinstance(outer, ast.keyword):
            return "noise" in (outer.arg or "")
        if isinstance(outer, (ast.Assign, ast.AnnAssign)):
            targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
            return any("noise" in ast.unparse(target) for target in targets)
        if isinstance(outer, ast.stmt):
            return False
    return False


def _scaled(side: Side) -> bool:
    """Whether the level is multiplied by the window, or computed in a way that is not plain."""
    values = [(option.function, option.value) for option in options(side, "noise_level")]
    for function, call in sampling_calls(side):
        value = sampling_argument(call, "noise_level")
        if value is not None:
            values.append((function, value))
    for function, value in values:
        if isinstance(value, (ast.BinOp, ast.BoolOp)) and of_window(origin(side, function, value).words):
            return True
        # One level a step: ``levels[index]``.
        if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Constant):
            return True
    return False


def _recorded(side: Side) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield where entries are put into the list that becomes the result's log-probs."""
    seen: set[ast.Call] = set()
    for option in options(side, RESULT):
        for around, _, node in origin(side, option.function, option.value).nodes:
            if around is not None and isinstance(node, (ast.Name, ast.Attribute)):
                for function, call in appended(side, around, node):
                    if call not in seen and call.args and "log_prob" in ast.unparse(call.args[0]).lower():
                        seen.add(call)
                        yield function, call


def _asks_for_none(function: FunctionModel, call: ast.Call) -> bool:
    """Whether an entry is recorded only where the scheduler gave a log-prob."""
    tests = [outer.test for outer in function.file.index.ancestors(call) if isinstance(outer, ast.If)]
    return any("None" in ast.unparse(test) for test in tests)


def _cut(side: Side) -> bool:
    """Whether the whole record is cut by the window afterwards."""
    for option in options(side, RESULT):
        for around, _, node in origin(side, option.function, option.value).nodes:
            if isinstance(node, ast.Slice) and node.lower is not None and around is not None:
                if of_window(origin(side, around, node.lower).words):
                    return True
    return False


_OPTIONS = 'options = self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}'
_RECORD = """        if inside:
            if not self._latents:
                self._latents.append(sample)
            self._latents.append(prev_sample)
            if log_prob is not None:
                self._log_probs.append(log_prob)
"""
_WHEEL = "verl_omni/pipelines/wheel_flow_grpo/vllm_omni_rollout_adapter.py"
FAILING = (
    Example(
        "inside and outside exchanged",
        {
            "rollout": [
                (
                    _OPTIONS,
                    'options = «{**self._options, "noise_level": 0.0, "return_logprobs": False} if inside else self._options»',
                )
            ]
        },
    ),
    Example(
        "noise in every step",
        {"rollout": [(_OPTIONS, "options = self._options"), ("_, _ = self.inner.step(", "_, _ = «self.inner.step»(")]},
    ),
    Example(
        "recorded in every step",
        {
            "rollout": [
                (_OPTIONS, 'options = self._options if inside else {**self._options, "noise_level": 0.0}'),
                (
                    _RECORD,
                    "        if not self._latents:\n            self._latents.append(sample)\n"
                    "        self._latents.append(prev_sample)\n        «self._log_probs.append(log_prob)»\n",
                ),
            ]
        },
    ),
    Example(
        "in a loop of the adapter's own",
        {
            _WHEEL: [
                ('noise_level=args["noise_level"] if inside else 0.0', 'noise_level=args["noise_level"]'),
                ("_, _ = self.scheduler.step(", "_, _ = «self.scheduler.step»("),
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example("inside alone"),
    Example("of diffusers", base="diffusers"),
    Example(
        "recorded whole and cut once",
        {
            "rollout": [
                (_OPTIONS, 'options = self._options if inside else {**self._options, "noise_level": 0.0}'),
                (
                    _RECORD,
                    "        if not self._latents:\n            self._latents.append(sample)\n"
                    "        self._latents.append(prev_sample)\n        self._log_probs.append(log_prob)\n",
                ),
                (
                    "torch.stack(self._log_probs, dim=1).cpu()",
                    "torch.stack(self._log_probs, dim=1)[:, begin:end].cpu()",
                ),
            ]
        },
    ),
)
