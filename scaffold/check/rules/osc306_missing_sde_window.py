"""The rollout never reads the SDE window from the request.

``sde_window_size`` and ``sde_window_range`` say which denoising steps get noise and are trained on. A rollout that
does not look makes every step stochastic, or none: the trainer expects ``sde_window_size`` log-probs a sample and
takes as many optimiser steps, and the samples come from another process than the recipe's.

    self.scheduler.begin(window=None, noise_level=noise_level, …)

Instead: read both from ``req.sampling_params.extra_args`` and draw the window in ``forward()``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC306"
NAME = "missing-sde-window"
SEVERITY = "error"
CHECKLIST = ("R6",)
APPLIES = Applies(objective="policy_gradient")
HELP = "read sde_window_size and sde_window_range from the request's extra_args, and step with noise inside only"
OPTIONS = ("sde_window_size", "sde_window_range")


def check(package: Package) -> Hits:
    """Look for the two options on the rollout's side."""
    side = side_of(package, "rollout")
    yield from _upside_down(side)
    yield from _only_asked(side)
    missing = [name for name in OPTIONS if not _reads(side, name)]
    for adapter in side.adapters:
        method = adapter.method("forward")
        if missing and method is not None and method in side and adapter.file in package.files and adapter.resolved:
            yield Hit(method.file, method.node, f"the rollout of {adapter.name} never reads {' and '.join(missing)}")


def _upside_down(side: Side) -> Hits:
    """Look for a window that is only drawn where there is no noise."""
    for function in side.functions:
        index = function.file.index
        for node in index.nodes(ast.If, function.node):
            test = node.test
            if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and "noise" in ast.unparse(test.left).lower()):
                continue
            none = isinstance(test.ops[0], (ast.Eq, ast.LtE, ast.Lt)) and function.file.value(test.comparators[0]) in (
                0,
                0.0,
            )
            texts = [n.value for part in node.body for n in index.nodes(ast.Constant, part)]
            if none and any(text in OPTIONS for text in texts):
                yield Hit(function.file, test, "the window is only chosen where there is no noise")


def _only_asked(side: Side) -> Hits:
    """Look for a size that is read, and then only tested: no window is made of it."""
    for function in side.functions:
        index = function.file.index
        tests: list[ast.expr] = [node.test for node in index.nodes(ast.If, function.node)]
        tests += [node.test for node in index.nodes(ast.IfExp, function.node)]
        for node in index.nodes(ast.Assign, function.node):
            target = node.targets[0]
            read = {n.value for n in index.nodes(ast.Constant, node.value)}
            if not isinstance(target, ast.Name) or OPTIONS[0] not in read or isinstance(node.value, ast.Dict):
                continue
            loads = [
                n for n in index.nodes(ast.Name, function.node) if n.id == target.id and isinstance(n.ctx, ast.Load)
            ]
            if loads and all(any(index.contains(test, load) for test in tests) for load in loads):
                yield Hit(function.file, node.value, f"{target.id} is read and only tested: no window is made of it")


def _reads(side: Side, name: str) -> bool:
    """Whether an option is read by its name: a key, an attribute, a field."""
    for index in {function.file: function.file.index for function in side.functions}.values():
        if any(node.value == name for node in index.nodes(ast.Constant)):
            return True
        if any(node.attr == name and isinstance(node.ctx, ast.Load) for node in index.nodes(ast.Attribute)):
            return True
    return False


FAILING = (
    Example("only without noise", rollout=(" noise_level > 0.0:", " «noise_level == 0.0»:")),
    Example(
        "the range is made up",
        rollout=[("def forward", "def «forward»"), ('extra_args.get("sde_window_range"', "(0, 7")],
    ),
)
PASSING = (
    Example(
        "by constants",
        rollout=[
            ("to_checkpoint_key\n", 'to_checkpoint_key\n\nWINDOW = ("sde_window_size", "sde_window_range")\n'),
            (
                'extra_args.get("sde_window_size"), extra_args.get("sde_window_range"',
                "*(extra_args.get(name) for name in WINDOW",
            ),
        ],
    ),
)
