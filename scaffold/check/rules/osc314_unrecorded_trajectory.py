"""The rollout's result lacks a part of the trajectory.

Training recomputes the log-probs of the window from its latents and timesteps, and compares them with those of the
rollout. Only what the result carries under ``trajectory_*`` reaches training; without one of the three the first
training step fails, or, where the trainer recomputes everything, compares the policy with itself.

    return rollout_output(media=image, trajectory_latents=latents, trajectory_timesteps=timesteps)

Instead: return ``trajectory_latents``, ``trajectory_timesteps`` and ``trajectory_log_probs`` with every sample.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import follow, has_unpacking
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.syntax import keyword_of

ID = "OSC314"
NAME = "unrecorded-trajectory"
SEVERITY = "error"
CHECKLIST = ("R6",)
APPLIES = Applies(objective="policy_gradient")
HELP = "return trajectory_latents, trajectory_timesteps and trajectory_log_probs with the media"
PARTS = ("trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")
# As releases before ``rollout_output()`` name them, in ``custom_output``.
EARLIER = ("all_latents", "all_timesteps", "all_log_probs")
_RESULTS = ("rollout_output", "with_rollout_data", "DiffusionOutput")


def check(package: Package) -> Hits:
    """Look at the results that are put together, and at adapters that put none together."""
    side = side_of(package, "rollout")
    calls = [(function, call) for function in side.functions for call in function.calls]
    made = [(f, c) for f, c in calls if (f.file.qualified(c.func) or "").rpartition(".")[2] in _RESULTS]
    wanted = _wanted(package)
    stale = False
    for function in side.functions:
        at = _earlier(function) if function.file in package.files and wanted == "rollout_output" else None
        if at is not None:
            stale = True
            text = "custom_output is what earlier releases read; here the agent loop reads what rollout_output() builds"
            yield Hit(function.file, at, text, "return rollout_output(…) with the trajectory")
    with_part = [(f, call) for f, call in calls if any(item.arg in PARTS for item in call.keywords)]
    for function, call in with_part if not stale else ():
        for part in PARTS if not has_unpacking(call) and keyword_of(call, "custom_output") is None else ():
            value = keyword_of(call, part)
            if value is None:
                yield Hit(function.file, call.func, f"{part} is missing from the result")
            elif ast.unparse(follow(function.file, value)) == "None":
                yield Hit(function.file, value, f"{part} is None in the result")
    if stale or with_part or any(has_unpacking(call) for _, call in made) or any(map(_names_a_part, side.functions)):
        return
    for adapter in side.adapters:
        method = adapter.method("forward")
        if adapter.file in package.files and adapter.resolved and method is not None and method in side:
            yield Hit(method.file, method.node, f"{adapter.name}.forward() returns no trajectory")


def _wanted(package: Package) -> str | None:
    """Return how the installed release hands the trajectory on: ``rollout_output`` or ``custom_output``."""
    exists = package.project.tree.exists
    if exists("verl_omni/pipelines/diffusion_rollout_output.py"):
        return "rollout_output"
    if exists("verl_omni/pipelines/model_base.py"):
        return "custom_output"
    return package.facts.text("target", "rollout_result")


def _earlier(function: FunctionModel) -> ast.AST | None:
    """Return where a function puts the parts of a trajectory under ``custom_output``."""
    index = function.file.index
    if not any(node.value in EARLIER for node in index.nodes(ast.Constant, function.node)):
        return None
    given = [value for call in function.calls if (value := keyword_of(call, "custom_output")) is not None]
    stored = [n for n in index.nodes(ast.Attribute, function.node) if n.attr == "custom_output"]
    written = [n for n in stored if isinstance(n.ctx, ast.Store) or isinstance(index.parent(n), ast.Subscript)]
    return next(iter([*given, *written]), None)


def _names_a_part(function: FunctionModel) -> bool:
    """Whether the trajectory is put on a result in another way, or under its earlier names."""
    index = function.file.index
    stored = [n for n in index.nodes(ast.Attribute, function.node) if n.attr in PARTS and isinstance(n.ctx, ast.Store)]
    return bool(stored) or any(n.value in (*PARTS, *EARLIER) for n in index.nodes(ast.Constant, function.node))


FAILING = (
    Example(
        "the log-probs are missing",
        rollout=[(" rollout_output(", " «rollout_output»("), ("            trajectory_log_probs=log_probs,\n", "")],
    ),
    Example("the latents are None", rollout=("trajectory_latents=latents", "trajectory_latents=«None»")),
)
PASSING = (
    Example(
        "gathered in a dictionary", rollout=("trajectory_log_probs=log_probs", '**{"trajectory_log_probs": log_probs}')
    ),
)
