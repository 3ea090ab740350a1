"""The two adapters are registered under different architecture strings.

The trainer looks both adapters up under one string, the one of ``+actor_rollout_ref.model.architecture=``. With two
strings one of the look-ups fails, or finds the adapter of another model.

    @DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")
    @VllmOmniPipelineBase.register("OmniToyForGeneration", algorithm="flow_grpo")

Instead: give both ``register`` calls the same string; a constant in ``common.py`` keeps it so.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC501"
NAME = "mismatched-architecture"
SEVERITY = "error"
CHECKLIST = ("W5", "pitfall 26")
APPLIES = Applies()


def check(package: Package) -> Hits:
    """Compare the strings of the two sides."""
    trained, rolled = package.registered("training"), package.registered("rollout")
    strings = [registration.architecture for registration in (*trained, *rolled)]
    if not trained or not rolled or not all(isinstance(text, str) for text in strings):
        return
    for registration in rolled:
        if all(registration.architecture != other.architecture for other in trained):
            expected = trained[0].architecture
            place = registration.architecture_node or registration.call
            message = f"rollout is registered as {registration.architecture!r}, training as {expected!r}"
            yield Hit(registration.file, place, message, f"register both adapters as {expected!r}")
            return


_ARCHITECTURE = '"OmniToyForConditionalGeneration"'
FAILING = (
    Example("another string for rollout", {"rollout": [(_ARCHITECTURE, '«"OmniToyForGeneration"»')]}),
    Example(
        "another string for training",
        {
            "training": [(_ARCHITECTURE, '"ToyPipeline"')],
            "rollout": [(_ARCHITECTURE, f"«{_ARCHITECTURE}»")],
        },
    ),
    Example(
        "by keyword, through constants",
        {
            "common": [("SCHEDULE_SHIFT = 3.0", 'SCHEDULE_SHIFT = 3.0\nARCHITECTURE = "OmniToy"')],
            "rollout": [
                (f"({_ARCHITECTURE}, ", "(architecture=«ARCHITECTURE», "),
                ("import CFG_DEFAULTS,", "import ARCHITECTURE, CFG_DEFAULTS,"),
            ],
        },
    ),
)
PASSING = (
    Example("the same string"),
    Example(
        "the same constant",
        {
            "common": [("SCHEDULE_SHIFT = 3.0", f"SCHEDULE_SHIFT = 3.0\nARCHITECTURE = {_ARCHITECTURE}")],
            "rollout": [
                (f"({_ARCHITECTURE}, ", "(ARCHITECTURE, "),
                ("import CFG_DEFAULTS,", "import ARCHITECTURE, CFG_DEFAULTS,"),
            ],
        },
    ),
    Example("diffusers", base="diffusers"),
)
