"""The registered rollout adapter does not inherit the model's pipeline of vllm-omni, or steps over it.

The worker builds the registered class in the place of the upstream pipeline and expects everything that a pipeline
has: loading, weights, requests, decoding. A class of its own lacks it, and an upstream fix never reaches it. An import
that falls back to a plain module gives such a class, and ``super(ToyPipeline, self)`` begins behind the pipeline.

    class ToyPipelineWithLogProb:                       # or a pipeline of diffusers
        def forward(self, req): …

Instead: inherit the upstream pipeline of the model, and override what rollout needs.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Hit, Hits

ID = "OSC302"
NAME = "foreign-rollout-base"
SEVERITY = "error"
CHECKLIST = ("R2",)
HELP = "inherit the model's pipeline from vllm_omni.diffusion.models"


def check(package: Package) -> Hits:
    """Look at the ancestors of what is registered."""
    for registration in package.registered("rollout"):
        cls = registration.cls
        if cls is None:
            continue
        yield from _stepped_over(cls)
        yield from _not_built(package, cls)
        wanted, own = package.facts.text("upstream", "class"), package.facts.text("upstream", "module")
        places = ("vllm_omni.", f"{own}.") if own else ("vllm_omni.",)  # a pipeline of one's own lies beside it
        pipelines = [base.rpartition(".")[2] for base in cls.external if base.startswith(places)]
        if cls.resolved and not pipelines and not _is_pipeline(cls):
            bases = ", ".join(base.rpartition(".")[2] for base in cls.external if base != "object") or "nothing"
            yield Hit(cls.file, cls.node, f"{cls.name} inherits {bases}, no pipeline of vllm-omni")
        elif cls.resolved and pipelines and wanted and wanted not in pipelines:
            text = f"{cls.name} inherits {pipelines[0]}, scaffold.toml was made for {wanted}"
            yield Hit(cls.file, cls.node, text, f"inherit {wanted}")


def _is_pipeline(cls: ClassModel) -> bool:
    """Whether a class is a pipeline by itself: a subclass of verl-omni's base, or a module that samples and loads."""
    asked = [function for method in cls.methods.values() for function in method.calls if _asks_above(function)]
    module = cls.derives_from("torch.nn.Module", "nn.Module") and cls.method("load_weights") and cls.method("forward")
    return not asked and bool(cls.derives_from("VllmOmniPipelineBase") or module)


def _asks_above(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("super().forward", "super().load_weights", "super().diffuse")


def _not_built(package: Package, cls: ClassModel) -> Hits:
    """Look for an ``__init__()`` that calls no other: the pipeline has none of its parts."""
    init = cls.method("__init__")
    if init is None or init.file not in package.files or not any(b.startswith("vllm_omni.") for b in cls.external):
        return
    called = {attribute_name(call) for function in reachable(init, cls) for call in function.calls}
    if "__init__" not in called:
        yield Hit(init.file, init.node, f"{cls.name}.__init__() never calls that of the pipeline", "call super()")


def _stepped_over(cls: ClassModel) -> Hits:
    """Look for ``super(Base, self)`` with the pipeline itself: it begins behind the pipeline."""
    pipelines = [base for base in cls.bases if isinstance(base, str) and base.startswith("vllm_omni.")]
    for method in cls.methods.values():
        for call in method.calls:
            outer = method.file.index.parent(call)
            if not (isinstance(call.func, ast.Name) and call.func.id == "super" and len(call.args) == 2):
                continue
            if isinstance(outer, ast.Attribute) and outer.attr in ("forward", "__init__", "load_weights"):
                name = method.file.qualified(call.args[0])
                if name in pipelines and len(pipelines) == 1:
                    short = str(name).rpartition(".")[2]
                    text = f"super({short}, …) begins behind {short}, whose {outer.attr}() never runs"
                    yield Hit(method.file, call, text, "write super()")


FAILING = (
    Example("the pipeline stepped over", rollout=("= super().", "= «super(ToyPipeline, self)».")),
    Example(
        "the pipeline of another model",
        rollout=("ToyPipelineWithLogProb(ToyPipeline)", "«ToyPipelineWithLogProb»(ToyPipeline)"),
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\nclass = "OtherPipeline"\n',
    ),
    Example("no base", rollout=("ToyPipelineWithLogProb(ToyPipeline)", "«ToyPipelineWithLogProb»")),
)
PASSING = (
    Example("super with its own class", rollout=(" super().forward", " super(ToyPipelineWithLogProb, self).forward")),
)
