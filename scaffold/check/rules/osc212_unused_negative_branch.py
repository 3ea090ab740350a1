"""The negative branch is prepared but never reaches the velocity, or used but never prepared.

The rollout samples with guidance. Training that leaves the branch without the prompt out recomputes the log-probs of
another velocity: 8e-2 off, where the clip range is 1e-5. Half of the memory of each step goes into a branch that
nobody looks at.

    velocity = module(**model_inputs)[0].float()
    return scheduler.sample_previous_step(model_output=velocity, …)      # negative_model_inputs is not used

Instead: run both branches and combine them before ``sample_previous_step``.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import origin
from scaffold.check.model.follow import returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD, NEGATIVE
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC212"
NAME = "unused-negative-branch"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "run module(**negative_model_inputs) and combine both branches before sample_previous_step()"


def check(package: Package) -> Hits:
    """Look whether the second dictionary is made, and whether the velocity depends on it."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method, preparing = adapter.method(METHOD), adapter.method("prepare_model_inputs")
        if method is None or preparing is None or method.is_abstract or len(method.positional) <= NEGATIVE:
            continue
        name = method.positional[NEGATIVE]
        made = [value.elts[1] for value in returned(preparing) if isinstance(value, ast.Tuple) and len(value.elts) == 2]
        if not made or len(made) != len(preparing.returns):
            continue
        if any(not _is_none(value) for value in made):
            if _sampled(side, adapter) and not _reaches(side, method, name):
                yield Hit(
                    method.file,
                    method.parameter_node(name) or method.node,
                    f"{adapter.name} prepares a negative branch, and the velocity does not depend on it",
                )
        elif _guides(side):
            for value in made:
                if preparing.file.index.contains(preparing.node, value):
                    yield Hit(preparing.file, value, "no negative branch is prepared, but guidance is applied")
        elif _unpacked(method, name):
            for value in made:
                if preparing.file.index.contains(preparing.node, value):
                    yield Hit(preparing.file, value, f"no negative branch is prepared, but {METHOD}() runs one")


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _sampled(side: Side, adapter: ClassModel) -> bool:
    """Whether the adapter's own code hands a velocity to the scheduler."""
    return any(sampling_argument(call, "model_output") is not None for _, call in sampling_calls(side))


def _reaches(side: Side, method: FunctionModel, name: str) -> bool:
    parameter = method.parameter_node(name)
    for function, call in sampling_calls(side):
        velocity = sampling_argument(call, "model_output")
        if velocity is None:
            continue
        found = origin(side, function, velocity)
        if not found.complete:
            return True
        for around, file, node in found.nodes:
            if isinstance(node, ast.Name) and around == method:
                if any(binding.node is parameter for binding in file.scopes.lookup(node.id, node)) and node.id == name:
                    return True
    return False


def _guides(side: Side) -> bool:
    """Whether the velocity depends on a scale of classifier-free guidance."""
    velocities = [(f, sampling_argument(call, "model_output")) for f, call in sampling_calls(side)]
    words = [origin(side, f, value).words for f, value in velocities if value is not None]
    return any(re.search(r"(?<![a-z])cfg(?![a-z])", word.lower()) for found in words for word in found)


def _unpacked(method: FunctionModel, name: str) -> bool:
    """Whether ``f(**name)`` stands where nothing asks whether there is such a branch."""
    index = method.file.index
    for call in method.calls:
        if any(
            item.arg is None and isinstance(item.value, ast.Name) and item.value.id == name for item in call.keywords
        ):
            tests = [outer.test for outer in index.ancestors(call) if isinstance(outer, (ast.If, ast.IfExp))]
            if not any(isinstance(n, ast.Name) and n.id == name for test in tests for n in index.walk(test)):
                return True
    return False


_GUIDED = """        if guidance["cfg_text_scale"] > 1.0:
            unconditional = module(**negative_model_inputs)[0].float()
            guided = unconditional + guidance["cfg_text_scale"] * (velocity - unconditional)
            low, high = guidance["cfg_interval"]
            sigma = timesteps[:, step].double()
            velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)
"""
_PARAMETERS = "model_inputs, negative_model_inputs, scheduler_inputs"
_MARKED = (_PARAMETERS, _PARAMETERS.replace("negative_model_inputs", "«negative_model_inputs»"))
_RETURN = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'
FAILING = (
    Example("not used", {"training": [(_GUIDED, ""), _MARKED]}, also=("OSC134",)),
    Example(
        "only tested",
        {"training": [(_GUIDED, "        assert negative_model_inputs is not None\n"), _MARKED]},
        also=("OSC134",),
    ),
    Example(
        "computed and dropped",
        {
            "training": [
                (
                    'guided = unconditional + guidance["cfg_text_scale"] * (velocity - unconditional)',
                    "guided = velocity",
                ),
                _MARKED,
            ]
        },
        also=("OSC134",),
    ),
    Example(
        "the other branch twice", {"training": [("module(**negative_model_inputs)", "module(**model_inputs)"), _MARKED]}
    ),
    Example("never prepared", {"training": [(_RETURN, "return conditional, «None»")]}),
    Example(
        "guided by the same branch",
        {
            "training": [
                (_RETURN, "return conditional, «None»"),
                ("unconditional = module(**negative_model_inputs)[0].float()", "unconditional = velocity"),
            ]
        },
    ),
)
PASSING = (
    Example("both branches are combined"),
    Example(
        "no guidance, and no branch for it",
        {"training": [(_RETURN, "return conditional, None"), (_GUIDED, "")]},
        also=("OSC134",),
    ),
    Example(
        "by way of a helper",
        {
            "training": [
                (
                    "unconditional = module(**negative_model_inputs)[0].float()",
                    "unconditional = cls._predict(module, negative_model_inputs)",
                ),
                (
                    "    @classmethod\n    def _prompt_token",
                    "    @staticmethod\n    def _predict(module, inputs):\n"
                    "        return module(**inputs)[0].float()\n\n    @classmethod\n    def _prompt_token",
                ),
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
