"""The rollout adapter is not registered for rollout.

vllm-omni's worker asks the registry for the pipeline of an architecture and algorithm. Without
``@VllmOmniPipelineBase.register(…)`` it takes the upstream pipeline: images come out, but no trajectory, no log-probs
and no noise in the window.

    class ToyPipelineWithLogProb(ToyPipeline): …        # no decorator

Instead: ``@VllmOmniPipelineBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC301"
NAME = "unregistered-rollout-adapter"
SEVERITY = "error"
CHECKLIST = ("R1",)
APPLIES = Applies()
HELP = 'decorate the class with @VllmOmniPipelineBase.register("<architecture>", algorithm="<algorithm>")'


def check(package: Package) -> Hits:
    """Compare the heirs of upstream pipelines with the registrations."""
    registered = package.registered("rollout")
    if not any(registration.cls is None for registration in registered):
        for adapter in package.rollout_adapters:
            if not any(registration.cls == adapter for registration in registered):
                # One class of a package may serve another as a tool; without any, the adapter is what is missing.
                if not registered:
                    yield Hit(adapter.file, adapter.node, f"{adapter.name} is not registered for rollout")
    for registration in registered:
        if (registration.architecture is None or registration.algorithm is None) and not has_unpacking(
            registration.call
        ):
            lacking = "architecture" if registration.architecture is None else "algorithm"
            yield Hit(registration.file, registration.call, f"register() gets no {lacking}")


_DECORATOR = '@VllmOmniPipelineBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")\n'
_CLASS = ("class ToyPipelineWithLogProb(", "class «ToyPipelineWithLogProb»(")
FAILING = (
    Example("no decorator", {"rollout": [(_DECORATOR, ""), _CLASS]}),
    Example(
        "no algorithm",
        {"rollout": [(_DECORATOR, '@«VllmOmniPipelineBase.register("OmniToyForConditionalGeneration")»\n')]},
        also=("OSC509",),
    ),
    Example(
        "of diffusers",
        {
            "verl_omni/pipelines/wheel_flow_grpo/vllm_omni_rollout_adapter.py": [
                ('@VllmOmniPipelineBase.register("WheelPipeline", algorithm="flow_grpo")\n', ""),
                ("class WheelPipelineWithLogProb(", "class «WheelPipelineWithLogProb»("),
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example("registered"),
    Example("of diffusers, registered", base="diffusers"),
    Example("positional", {"rollout": [(_DECORATOR, _DECORATOR.replace("algorithm=", ""))]}),
)
