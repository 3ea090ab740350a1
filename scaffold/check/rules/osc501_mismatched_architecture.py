"""The two adapters are registered under different architecture strings.

The trainer looks both adapters up under one string, the one of ``+actor_rollout_ref.model.architecture=``. With two
strings one of the look-ups fails, or finds the adapter of another model.

    @DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")
    @VllmOmniPipelineBase.register("OmniToyForGeneration", algorithm="flow_grpo")

Instead: give both ``register`` calls the same string; a constant in ``common.py`` keeps it so.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.dataflow import bound_value
from scaffold.check.model.package import Package
from scaffold.check.rule import Hit, Hits

ID = "OSC501"
NAME = "mismatched-architecture"
SEVERITY = "error"
CHECKLIST = ("W5", "pitfall 26")


_SIDES = ("training", "rollout")


def check(package: Package) -> Hits:
    """Compare the strings of the two sides."""
    yield from _tested(package)
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


def _tested(package: Package) -> Hits:
    """Compare the constant ``ARCHITECTURE`` of the package's tests with what is registered."""
    known = package.architectures
    if len(known) != len({item.architecture for side in _SIDES for item in package.registered(side)}):
        return
    for test in package.cpu_tests:
        bindings = test.names.get("ARCHITECTURE", ())
        for binding in bindings if len(bindings) == 1 and test.path.find(package.name) >= 0 else ():
            value = binding.value or bound_value(test, binding.node)
            text = test.value(value) if value is not None else None
            if known and isinstance(text, str) and text not in known and value is not None:
                message = f"the test asks for {text!r}, the package is registered as {known[0]!r}"
                yield Hit(test, value, message, f"write {known[0]!r}")


FAILING = (
    Example(
        "a test of another one",
        test=("ToyPipelineWithLogProb\n", 'ToyPipelineWithLogProb\n\nARCHITECTURE = «"ToyForConditionalGeneration"»\n'),
    ),
    Example("another string for rollout", rollout=('"OmniToyForConditionalGeneration"', '«"OmniToyForGeneration"»')),
    Example(
        "another string for training",
        training=("OmniToyForConditionalGeneration", "ToyPipeline"),
        rollout=('"OmniToyForConditionalGeneration"', '«"OmniToyForConditionalGeneration"»'),
    ),
)
PASSING = (
    Example(
        "the same constant",
        common=("SCHEDULE_SHIFT = 3.0\n", 'SCHEDULE_SHIFT = 3.0\nARCHITECTURE = "OmniToyForConditionalGeneration"\n'),
        rollout=[
            ("import CFG_DEFAULTS", "import ARCHITECTURE, CFG_DEFAULTS"),
            ('"OmniToyForConditionalGeneration"', "ARCHITECTURE"),
        ],
    ),
)
