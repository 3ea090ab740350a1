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


_LOG_PROBS = "            trajectory_log_probs=log_probs,\n"
_RESULT = ("        return rollout_output(\n", "        return «rollout_output»(\n")
_WHOLE = """        return rollout_output(
            media=output.output,
            trajectory_latents=latents,
            trajectory_timesteps=timesteps,
            trajectory_log_probs=log_probs,
            to_cpu=False,
        )
"""
FAILING = (
    Example("the log-probs are missing", {"rollout": [(_LOG_PROBS, ""), _RESULT]}, also=("OSC134",)),
    Example(
        "the latents are None",
        {"rollout": [("trajectory_latents=latents,", "trajectory_latents=«None»,")]},
        also=("OSC134",),
    ),
    Example(
        "only the media",
        {
            "rollout": [
                (_WHOLE, "        return output\n"),
                ("    def forward(self, req", "    def «forward»(self, req"),
            ]
        },
        also=("OSC134",),
    ),
    Example(
        "the timesteps are missing",
        {
            "verl_omni/pipelines/wheel_flow_grpo/vllm_omni_rollout_adapter.py": [
                ("            trajectory_timesteps=timesteps[None],\n", ""),
                _RESULT,
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example("all three"),
    Example(
        "gathered in a dictionary", {"rollout": [(_LOG_PROBS, '            **{"trajectory_log_probs": log_probs},\n')]}
    ),
    Example("in a loop of the adapter's own", base="diffusers"),
    Example(
        "in custom_output, as earlier releases take it",
        {
            "rollout": [
                (
                    _WHOLE,
                    "        kept = {'all_latents': latents, 'all_timesteps': timesteps, 'all_log_probs': log_probs}\n"
                    "        return DiffusionOutput(\n            output=output.output, custom_output=kept, "
                    "trajectory_latents=None\n        )\n",
                )
            ]
        },
    ),
)
