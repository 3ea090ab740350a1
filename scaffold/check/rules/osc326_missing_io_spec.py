"""The rollout adapter declares no media, and the checkout asks for them.

Since verl-omni v0.3.0 each rollout adapter says what it makes, and the strategy rejects a result that fits no
declaration. A test of the repository goes through the adapters as well.

    class ToyPipelineWithLogProb(ToyPipeline):             # no diffusion_io_spec

Instead: ``diffusion_io_spec = DiffusionIOSpec(primary=MediaSpec("image"))``, both of
``verl_omni.pipelines.rollout_media``. Seen in verl-omni#478.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC326"
NAME = "missing-io-spec"
SEVERITY = "error"
CHECKLIST = ("R1",)
APPLIES = Applies(non_diffusers=True)
HELP = "declare what the adapter makes as diffusion_io_spec, with the classes of verl_omni/pipelines/rollout_media.py"
_MEDIA = "verl_omni/pipelines/rollout_media.py"
_SPEC = "diffusion_io_spec"


def check(package: Package) -> Hits:
    """Look for the declaration, in a checkout that has the classes for it."""
    if not package.project.tree.exists(_MEDIA):
        return
    for registration in package.registered("rollout"):
        cls = registration.cls
        if cls is not None and cls.resolved and cls.attribute(_SPEC) is None and cls.method(_SPEC) is None:
            yield Hit(cls.file, cls.node, f"{cls.name} has no {_SPEC}, and {_MEDIA} asks for one")


_CLASSES = {_MEDIA: "class MediaSpec: ...\n\n\nclass DiffusionIOSpec: ...\n"}
FAILING = (
    Example("none", _CLASSES, rollout=("ToyPipelineWithLogProb(ToyPipeline)", "«ToyPipelineWithLogProb»(ToyPipeline)")),
)
PASSING = (
    Example(
        "declared",
        _CLASSES,
        rollout=[
            (
                "WithLogProb(ToyPipeline):\n",
                'WithLogProb(ToyPipeline):\n    diffusion_io_spec = DiffusionIOSpec(MediaSpec("image"))\n\n',
            ),
            (
                "from verl_omni.pipelines.schedulers",
                "from verl_omni.pipelines.rollout_media import DiffusionIOSpec, MediaSpec\nfrom verl_omni.pipelines.schedulers",
            ),
        ],
    ),
    Example("a checkout that knows none"),
)
