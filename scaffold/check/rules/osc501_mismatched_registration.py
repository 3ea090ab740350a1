"""The adapters, a script or a test name different architectures or algorithms.

The trainer looks both adapters up under one architecture and one algorithm, those of the script. With different strings
a look-up fails, or finds another model's adapter. A checkpoint that diffusers cannot load has no ``model_index.json``,
so every script has to name the architecture; a package under the name of its upstream pipeline may leave it out.

    @DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")
    @VllmOmniPipelineBase.register("OmniToyForGeneration", algorithm="flowgrpo")

Instead: give both ``register`` calls and every script the same two strings; a constant in ``common.py`` keeps them so.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.dataflow import bound_value
from scaffold.check.model.package import ALGORITHM, ARCHITECTURE, Package
from scaffold.check.rule import Hit, Hits

ID = "OSC501"
NAME = "mismatched-registration"
SEVERITY = "error"
CHECKLIST = ("W5", "S1", "T1", "R1", "pitfall 26")


def check(package: Package) -> Hits:
    """Compare the two sides with each other, with the scripts and with the tests."""
    yield from _tested(package)
    yield from _architectures(package)
    yield from _algorithms(package)
    if package.is_non_diffusers is True and len(package.architectures) == 1:
        yield from _scripts(package, package.architectures[0])
    known = package.algorithms
    if any(not isinstance(registration.algorithm, str) for registration in package.registrations) or not known:
        return
    for script in package.scripts:
        override = script.override(ALGORITHM)
        if override is not None and isinstance(override.value, str) and override.value not in known:
            text = f"algorithm {override.value!r} has no adapter in {package.name}, which has {', '.join(known)}"
            yield Hit(script, override.value_span, text, f"write {ALGORITHM}={known[0]}")


def _architectures(package: Package) -> Hits:
    trained, rolled = package.registered("training"), package.registered("rollout")
    strings = [registration.architecture for registration in (*trained, *rolled)]
    if not trained or not all(isinstance(text, str) for text in strings):
        return
    for registration in rolled:
        if all(registration.architecture != other.architecture for other in trained):
            expected = trained[0].architecture
            place = registration.architecture_node or registration.call
            message = f"rollout is registered as {registration.architecture!r}, training as {expected!r}"
            yield Hit(registration.file, place, message, f"register both adapters as {expected!r}")
            return


def _algorithms(package: Package) -> Hits:
    for registration in package.registered("rollout"):
        if not isinstance(registration.algorithm, str) or not isinstance(registration.architecture, str):
            continue
        others = [other for other in package.registered("training") if other.architecture == registration.architecture]
        algorithms = [other.algorithm for other in others]
        if not algorithms or not all(isinstance(name, str) for name in algorithms):
            continue
        if registration.algorithm not in algorithms:
            place = registration.algorithm_node or registration.call
            text = f"rollout is registered for {registration.algorithm!r}, training for {algorithms[0]!r}"
            yield Hit(registration.file, place, text, f"register both adapters for {algorithms[0]!r}")


def _scripts(package: Package, known: str) -> Hits:
    """Look at the architecture of every script that trains the package."""
    help = f"write +{ARCHITECTURE}={known}"
    for script in package.scripts:
        trains = [item for item in script.overrides if item.key.startswith("actor_rollout_ref.")]
        override = script.override(ARCHITECTURE)
        if not trains or (override is None and package.indexed):
            continue
        if override is None:
            yield Hit(script, trains[0].span, f"the script names no architecture for {package.name}", help)
        elif isinstance(override.usual, str) and override.usual != known:
            text = f"architecture {override.usual!r} is not the registered {known!r}"
            yield Hit(script, override.value_span, text, help)


def _tested(package: Package) -> Hits:
    """Compare the constant ``ARCHITECTURE`` of the package's tests with what is registered."""
    known = package.architectures
    if len(known) != len({item.architecture for side in ("training", "rollout") for item in package.registered(side)}):
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
    Example("another algorithm for rollout", rollout=('"flow_grpo"', '«"flowgrpo"»')),
    Example("a script of another algorithm", launch=("=flow_grpo", "=«dance_grpo»")),
    Example("another string in the launch script", launch=("OmniToyForConditionalGeneration", "«ToyPipeline»")),
    Example("a wrong default in place", launch=("OmniToyForConditionalGeneration", "«${ARCH:-ToyPipeline}»")),
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
    Example("the script leaves it to the default", launch=("    actor_rollout_ref.model.algorithm=flow_grpo\n", "")),
    Example(
        "registered under the upstream pipeline's own name",
        launch=("    +actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration\n", ""),
        e2e=("    +actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration \\\n", ""),
        training=('"OmniToyForConditionalGeneration"', '"ToyPipeline"'),
        rollout=('"OmniToyForConditionalGeneration"', '"ToyPipeline"'),
    ),
    Example(
        "a key of the configuration that the script starts from",
        {
            "examples/flowgrpo_trainer/toy/toy_preset.yaml": (
                "actor_rollout_ref:\n  model:\n    architecture: OmniToyForConditionalGeneration\n"
            )
        },
        launch=[
            ("    +actor_rollout_ref.model.arch", "    actor_rollout_ref.model.arch"),
            ("main_diffusion \\\n", "main_diffusion \\\n    --config-name toy_preset \\\n"),
        ],
    ),
    Example("through a variable of the environment", launch=("OmniToyForConditionalGeneration", '"$ARCH"')),
)
