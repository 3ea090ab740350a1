"""The rollout adapter is not registered for rollout, or only under a condition that nothing meets.

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
from scaffold.check.model.python import ClassModel
from scaffold.check.model.registration import may_be_registered, takes_algorithm
from scaffold.check.rule import Hit, Hits

ID = "OSC301"
NAME = "unregistered-rollout-adapter"
SEVERITY = "error"
CHECKLIST = ("R1",)
HELP = 'decorate the class with @VllmOmniPipelineBase.register("<architecture>", algorithm="<algorithm>")'


def check(package: Package) -> Hits:
    """Compare the subclasses of upstream pipelines with the registrations."""
    registered = package.registered("rollout")
    if not any(registration.cls is None for registration in registered):
        for adapter in package.rollout_adapters:
            if not any(registration.cls == adapter for registration in registered):
                # One class of a package may serve another as a tool; without any, the adapter is what is missing.
                served = any(_is_pipeline(registration.cls) for registration in registered)
                if not (served or may_be_registered(adapter)):
                    yield Hit(adapter.file, adapter.node, f"{adapter.name} is not registered for rollout")
    for registration in registered:
        if (registration.architecture is None or registration.algorithm is None) and not has_unpacking(
            registration.call
        ):
            lacking = "architecture" if registration.architecture is None else "algorithm"
            if lacking == "architecture" or takes_algorithm(package.project, "VllmOmniPipelineBase"):
                yield Hit(registration.file, registration.call, f"register() gets no {lacking}")


def _is_pipeline(cls: ClassModel | None) -> bool:
    """Whether a class is, or may be, a pipeline."""
    return (
        cls is None
        or not cls.resolved
        or any(name.startswith("vllm_omni.") or "Pipeline" in name for name in cls.external)
    )


FAILING = (
    Example(
        "no decorator",
        rollout=(
            (
                '@VllmOmniPipelineBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")\n'
                "class ToyPipelineWithLogProb"
            ),
            "class «ToyPipelineWithLogProb»",
        ),
    ),
    Example(
        "no algorithm",
        rollout=(
            'VllmOmniPipelineBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")',
            '«VllmOmniPipelineBase.register("OmniToyForConditionalGeneration")»',
        ),
        also="OSC501",
    ),
)
PASSING = (Example("positional", rollout=("algorithm=", "")),)
