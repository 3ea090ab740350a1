"""The registered rollout adapter does not inherit a pipeline of vllm-omni.

The worker builds the registered class in the place of the upstream pipeline and expects everything that a pipeline
has: loading, weights, requests, decoding. A class of its own lacks it, and an upstream fix never reaches it.

    class ToyPipelineWithLogProb:                       # or a pipeline of diffusers
        def forward(self, req): …

Instead: inherit the upstream pipeline of the model, and override what rollout needs.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC302"
NAME = "foreign-rollout-base"
SEVERITY = "error"
CHECKLIST = ("R2",)
APPLIES = Applies()
HELP = "inherit the model's pipeline from vllm_omni.diffusion.models"


def check(package: Package) -> Hits:
    """Look at the ancestors of what is registered."""
    for registration in package.registered("rollout"):
        cls = registration.cls
        if cls is None or not cls.resolved:
            continue
        wanted = recorded(package, "upstream", "class")
        pipelines = [base for base in cls.external if base.startswith("vllm_omni.") and "Pipeline" in base]
        if wanted and pipelines and not any(base.rpartition(".")[2] == wanted for base in pipelines):
            name = pipelines[0].rpartition(".")[2]
            text = f"{cls.name} inherits {name}, scaffold.toml was made for {wanted}"
            yield Hit(cls.file, cls.node, text, f"inherit {wanted}")
        if not any(base.startswith("vllm_omni.") for base in cls.external):
            bases = ", ".join(base.rpartition(".")[2] for base in cls.external if base != "object") or "nothing"
            yield Hit(cls.file, cls.node, f"{cls.name} inherits {bases}, no pipeline of vllm-omni")


_CLASS = "class ToyPipelineWithLogProb(ToyPipeline):"
_SPEC = 'schema = 1\n\n[upstream]\nversion = "0.27.0rc1"\nclass = "{}"\n'
FAILING = (
    Example(
        "the pipeline of another model",
        {
            "spec": _SPEC.format("BoatPipeline"),
            "rollout": [(_CLASS, _CLASS.replace("ToyPipelineWithLogProb", "«ToyPipelineWithLogProb»"))],
        },
    ),
    Example("no base", {"rollout": [(_CLASS, "class «ToyPipelineWithLogProb»:")]}),
    Example("the registry's base", {"rollout": [(_CLASS, "class «ToyPipelineWithLogProb»(VllmOmniPipelineBase):")]}),
    Example(
        "a pipeline of diffusers",
        {
            "rollout": [
                ("import torch\n", "import torch\nfrom diffusers import DiffusionPipeline\n"),
                (_CLASS, "class «ToyPipelineWithLogProb»(DiffusionPipeline):"),
            ]
        },
    ),
)
PASSING = (
    Example("the recorded pipeline", {"spec": _SPEC.format("ToyPipeline")}),
    Example("the upstream pipeline"),
    Example(
        "by way of a mixin and a class of the tree",
        {
            "rollout": [
                (
                    '@VllmOmniPipelineBase.register("Omni',
                    "class _Mixin:\n    pass\n\n\nclass _Base(_Mixin, ToyPipeline):\n    pass\n\n\n"
                    '@VllmOmniPipelineBase.register("Omni',
                ),
                (_CLASS, "class ToyPipelineWithLogProb(_Base):"),
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
