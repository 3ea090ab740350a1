"""The rollout's scheduler gets schedule and window after the pipeline has run.

The pipeline's ``forward`` calls the scheduler's ``step``. What ``step`` reads has to be there before: set up behind
it, the first request fails, or takes its steps with the window and the noise level of the request before.

    output = super().forward(req)
    self.scheduler.begin(num_inference_steps=…, window=…)

Instead: set the scheduler up first, run the pipeline, then take the trajectory.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.scheduler_wrappers import replacements
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC324"
NAME = "setup-behind-the-run"
SEVERITY = "error"
CHECKLIST = ("R3", "R6")
APPLIES = Applies(objective="policy_gradient")
HELP = "call it before super().forward()"


def check(package: Package) -> Hits:
    """Compare the places of ``super().forward()`` and of the wrapper's methods that fill what ``step`` reads."""
    side = side_of(package, "rollout")
    attribute = recorded(package, "upstream", "scheduler_attribute") or "scheduler"
    for adapter in side.adapters:
        method = adapter.method("forward")
        if method is None or method.file not in package.files:
            continue
        runs = [call for call in method.calls if ast.unparse(call.func) == "super().forward"]
        wrappers = [item.wrapper for item in replacements(side, adapter, attribute) if item.wrapper is not None]
        if len(runs) != 1 or len(wrappers) != 1:
            continue
        calls = [(call, name) for call in method.calls if (name := _method(method, call, attribute)) is not None]
        setups = _setups(wrappers[0])
        filling = [(call, name) for call, name in calls if name in setups]
        if any(function != method for function, _ in side.calls(*setups)):
            continue  # a helper may have set it up before
        if filling and all(call.lineno > (runs[0].end_lineno or 0) for call, _ in filling):
            call, name = filling[0]
            text = f"{name}() fills what step() reads, and the pipeline has taken its steps by then"
            yield Hit(method.file, call.func, text)


def _method(method: FunctionModel, call: ast.Call, attribute: str) -> str | None:
    """Return ``m`` of ``self.scheduler.m(…)``."""
    target = call.func
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Attribute):
        return None
    owner = target.value.value
    own = isinstance(owner, ast.Name) and owner.id == method.bound and target.value.attr == attribute
    return target.attr if own else None


def _setups(wrapper: ClassModel) -> set[str]:
    """Return the methods that put arguments into attributes which ``step`` reads."""
    step = wrapper.method("step")
    if step is None:
        return set()
    read = {
        node.attr
        for node in step.file.index.nodes(ast.Attribute, step.node)
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name) and node.value.id == step.bound
    }
    return {
        method.name
        for name, method in wrapper.methods.items()
        if name not in ("step", "__init__")
        and method.parameters
        and any(
            isinstance(node.ctx, ast.Store) and node.attr in read
            for node in method.file.index.nodes(ast.Attribute, method.node)
        )
    }


_RUN = "        output = super().forward(req)\n"
FAILING = (
    Example(
        "the pipeline runs first",
        {
            "rollout": [
                (_RUN, ""),
                (
                    "        self.scheduler.begin(",
                    "        output = super().forward(req)\n        «self.scheduler.begin»(",
                ),
            ]
        },
    ),
)
PASSING = (
    Example("set up, run, taken"),
    Example("of diffusers", base="diffusers"),
)
