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
from scaffold.check.model.calls import has_unpacking, keyword
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.keys import dict_keys
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC314"
NAME = "unrecorded-trajectory"
SEVERITY = "error"
CHECKLIST = ("R6",)
APPLIES = Applies(objective="policy_gradient")
HELP = "return trajectory_latents, trajectory_timesteps and trajectory_log_probs with the media"
PARTS = ("trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")
EARLIER = ("all_latents", "all_timesteps", "all_log_probs")
_RESULTS = ("rollout_output", "with_rollout_data", "DiffusionOutput")


def check(package: Package) -> Hits:
    """Look at the results that are put together, and at adapters that put none together."""
    side = side_of(package, "rollout")
    made = [
        (function, call)
        for function in side.functions
        for call in function.calls
        if (function.file.qualified(call.func) or "").rpartition(".")[2] in _RESULTS
    ]
    other = list(_of_another_release(package, side.functions))
    yield from other
    if other:
        return
    with_part = [(f, call) for f, call in made if any(item.arg in PARTS for item in call.keywords)]
    for function, call in with_part:
        earlier = keyword(call, "custom_output")
        if earlier is not None:
            yield from _earlier(function, call, earlier)
            continue
        for part in PARTS if not has_unpacking(call) else ():
            value = keyword(call, part)
            if value is None:
                yield Hit(function.file, call.func, f"{part} is missing from the result")
            elif _is_none(function, value):
                yield Hit(function.file, value, f"{part} is None in the result")
    if with_part or any(has_unpacking(call) for _, call in made) or _attached(side.functions):
        return
    for adapter in side.adapters:
        method = adapter.method("forward")
        if adapter.file in package.files and adapter.resolved and method is not None and method in side:
            yield Hit(method.file, method.node, f"{adapter.name}.forward() returns no trajectory")


def _of_another_release(package: Package, functions: list[FunctionModel]) -> Hits:
    """Look for the result of a release that hands the trajectory on in another way than the one that is installed."""
    project = package.project
    named = recorded(package, "target", "rollout_result")
    if project.tree.exists("verl_omni/pipelines/diffusion_rollout_output.py"):
        named = "rollout_output"
    elif project.tree.exists("verl_omni/pipelines/model_base.py"):
        named = "custom_output"
    if named is None:
        return
    help = "return rollout_output(…) with the trajectory" if named == "rollout_output" else "give custom_output={…}"
    for function in functions:
        if function.file not in package.files:
            continue
        index = function.file.index
        for call in function.calls:
            name = function.file.qualified(call.func) or ""
            if name.endswith("diffusion_rollout_output.rollout_output") and named == "custom_output":
                yield Hit(
                    function.file, call.func, "this release has no rollout_output(), and reads custom_output", help
                )
        earlier = [node for node in index.nodes(ast.Constant, function.node) if node.value in EARLIER]
        places: list[ast.AST] = [
            item.value for call in function.calls for item in call.keywords if item.arg == "custom_output"
        ]
        places += [
            outer
            for node in index.nodes(ast.Attribute, function.node)
            if node.attr == "custom_output"
            for outer in index.ancestors(node)
            if isinstance(outer, ast.stmt)
        ][:1]
        written = next((p for p in places if _writes(function, p) and (earlier or isinstance(p, ast.expr))), None)
        if named == "rollout_output" and written is not None:
            text = "custom_output is what earlier releases read; here the agent loop reads what rollout_output() builds"
            yield Hit(function.file, written, text, help)


def _writes(function: FunctionModel, place: ast.AST) -> bool:
    """Whether a trajectory is put there: an argument that names its parts, an assignment or a call."""
    if isinstance(place, ast.expr):
        return any(key in EARLIER for key in _texts(function, follow(function.file, place)))
    inside = function.file.index.nodes(ast.Attribute, place)
    stored = any(node.attr == "custom_output" and isinstance(node.ctx, ast.Store) for node in inside)
    subscript = isinstance(place, ast.Assign) and any(isinstance(t, ast.Subscript) for t in place.targets)
    return stored or subscript or isinstance(place, ast.Expr)


def _texts(function: FunctionModel, value: ast.expr) -> set[object]:
    texts: set[object] = {node.value for node in function.file.index.nodes(ast.Constant, value)}
    return texts | {item.arg for call in function.file.index.nodes(ast.Call, value) for item in call.keywords}


def _earlier(function: FunctionModel, call: ast.Call, value: ast.expr) -> Hits:
    """Look at the result of releases that hand the trajectory on in ``custom_output``."""
    keys = dict_keys(function, value)
    if keys is not None and keys.complete:
        for part in EARLIER:
            if part not in keys.nodes:
                yield Hit(function.file, call.func, f"{part} is missing from the result")


def _is_none(function: FunctionModel, value: ast.expr) -> bool:
    value = follow(function.file, value)
    return isinstance(value, ast.Constant) and value.value is None


def _attached(functions: list[FunctionModel]) -> bool:
    """Whether the trajectory is put on a result in another way, or read from the upstream pipeline's."""
    for function in functions:
        for node in function.file.index.nodes(ast.Attribute, function.node):
            if node.attr in PARTS and isinstance(node.ctx, ast.Store):
                return True
        for text in function.file.index.nodes(ast.Constant, function.node):
            if text.value in PARTS or text.value in ("all_latents", "all_log_probs"):
                return True
    return False


FAILING = (
    Example(
        "of an earlier release",
        rollout=(
            (
                "rollout_output(\n            media=output.output,\n            trajectory_latents=latents,\n            trajectory_timesteps=timesteps,\n            trajectory_log_probs=log_probs,\n            to_cpu=False"
            ),
            (
                "DiffusionOutput(\n            output=output.output,\n"
                '            custom_output=«{"all_latents": latents, "all_timesteps": timesteps, "all_log_probs": log_probs}»'
            ),
        ),
        spec='[upstream]\nversion = "0.27.0rc1"\n\n[target]\nrollout_result = "rollout_output"\n',
    ),
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
    Example(
        "in custom_output, as earlier releases take it",
        rollout=(
            (
                "return rollout_output(\n            media=output.output,\n            trajectory_latents=latents,\n            trajectory_timesteps=timesteps,\n            trajectory_log_probs=log_probs,\n            to_cpu=False,"
            ),
            (
                "kept = {'all_latents': latents, 'all_timesteps': timesteps, 'all_log_probs': log_probs}\n        return DiffusionOutput(\n            output=output.output, custom_output=kept, trajectory_latents=None"
            ),
        ),
    ),
)
