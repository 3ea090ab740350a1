"""The pipeline keeps its own scheduler, or its replacement does not fit the pipeline's ``step()``.

The upstream scheduler takes the deterministic Euler step: no noise, no log-prob, nothing to learn from. Its
replacement is called as the pipeline calls schedulers; one that takes fewer arguments raises in the first step, and
verl-omni's scheduler in the place of one that is called with ``(model_output, sigma, sample, dt)`` takes ``dt`` for
its ``s_churn``.

    def __init__(self, *, od_config, prefix=""):
        super().__init__(od_config=od_config, prefix=prefix)       # and self.scheduler stays as it is

Instead: assign an SDE scheduler to the pipeline's attribute, wrapped where the pipeline calls ``step()`` otherwise.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.model.scheduler_wrappers import SDE, Replacement, replacements
from scaffold.check.model.sde import sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC303"
NAME = "unwrapped-scheduler"
SEVERITY = "error"
CHECKLIST = ("R3",)
APPLIES = Applies(objective="policy_gradient")
HELP = f"assign a {SDE}, wrapped where the pipeline calls step() in another way, to self.scheduler"
# What FlowMatchSDEDiscreteScheduler.step() takes before its options begin.
_PLAIN = 3
_STEPS = ("step", "sample_previous_step")


def check(package: Package) -> Hits:
    """Look at what stands in the place of the pipeline's scheduler."""
    side = side_of(package, "rollout")
    attribute = package.facts.text("upstream", "scheduler_attribute") or "scheduler"
    called_with = package.facts.strings("upstream", "step_arguments")
    for adapter in side.adapters:
        if adapter.file not in package.files or not adapter.resolved:
            continue
        found = replacements(side, adapter, attribute)
        if not found and not _set_otherwise(side, attribute) and not _samples(side, adapter):
            yield Hit(adapter.file, adapter.node, f"{adapter.name} leaves the pipeline's own {attribute} in place")
        for item in found:
            file = item.function.file
            if file.project.class_of(file, item.value) is not None:
                yield Hit(file, item.value, f"{ast.unparse(item.value)} is a class, not an instance of it")
            elif (item.made or "").startswith("diffusers."):
                yield Hit(file, item.value, f"{(item.made or '').rpartition('.')[2]} of diffusers takes no SDE steps")
            elif item.wrapper is not None and not item.is_sde:
                yield from _wrapper(item, item.wrapper, called_with)
            elif item.is_sde and item.wrapper is None and len(called_with or ()) > _PLAIN:
                text = f"the pipeline calls step() with {', '.join(called_with or ())}; {SDE} takes {_PLAIN} of them"
                yield Hit(file, item.value, text)


def _samples(side: Side, adapter: ClassModel) -> bool:
    """Whether the adapter takes the SDE steps by itself, in a loop or in the engine's step execution."""
    return any(function.cls in adapter.mro for function, _ in sampling_calls(side))


def _set_otherwise(side: Side, attribute: str) -> bool:
    """Whether the scheduler is replaced in a way that is not an assignment to ``self``."""
    for function in side.functions:
        for node in function.file.index.nodes(ast.Attribute, function.node):
            if node.attr == attribute and isinstance(node.ctx, ast.Store):
                return True
        if any(function.file.qualified(call.func) == "setattr" for call in function.calls):
            return True
    return False


def _steps(function: FunctionModel) -> bool:
    """Whether a function names a step of a scheduler: to call it, or to bind it and call it later."""
    return any(node.attr in _STEPS for node in function.file.index.nodes(ast.Attribute, function.node))


def _wrapper(item: Replacement, wrapper: ClassModel, called_with: list[str] | None) -> Hits:
    method = wrapper.method("step")
    if method is None:
        if wrapper.resolved and not wrapper.external and wrapper.method("__getattr__") is None:
            yield Hit(item.function.file, item.value, f"{wrapper.name} has no step()")
        return
    steps = any(_steps(function) for function in reachable(method, wrapper))
    if not steps and wrapper.resolved and not wrapper.external:
        yield Hit(method.file, method.node, f"{wrapper.name}.step() never takes a step of an SDE scheduler")
    if called_with is None or method.vararg is not None:
        return
    required = [name for name in method.positional if name in method.required]
    moved = [n for at, n in enumerate(called_with) if n in method.positional and method.positional.index(n) != at]
    if moved or not len(required) <= len(called_with) <= len(method.positional):
        text = f"the pipeline calls step({', '.join(called_with)}), {wrapper.name} takes {', '.join(method.positional)}"
        yield Hit(method.file, method.node, text)


FAILING = (Example("the class itself", rollout=("_ToySchedulerAdapter()", "«_ToySchedulerAdapter»")),)
PASSING = (
    Example(
        "a step that is bound first",
        rollout=[
            ("from typing import NamedTuple\n", "from functools import partial\nfrom typing import NamedTuple\n"),
            (
                "prev_sample, log_prob, _, _ = self.inner.step(\n            model_output=model_output.float()[None],\n",
                "walk = partial(\n            self.inner.step,\n",
            ),
            (
                "            **options,\n        )\n",
                "            **options,\n        )\n        prev_sample, log_prob, _, _ = walk(model_output=model_output.float()[None])\n",
            ),
        ],
    ),
    Example(
        "a wrapper that takes what the pipeline gives",
        spec=(
            "schema = 1\n\n[upstream]\n"
            'version = "0.27.0rc1"\nscheduler_attribute = "scheduler"\n'
            "step_arguments = [\n"
            '    "model_output",\n    "timestep",\n    "sample",\n    "dt",\n'
            "]\n"
        ),
    ),
)
