"""A script trains the package without naming its architecture, or names another one.

The checkpoint of a model that diffusers cannot load has no ``model_index.json`` that the architecture could be read
from. Without ``+actor_rollout_ref.model.architecture=…`` the trainer stops; with another string it takes another
adapter, or none. A package that is registered under the name of its upstream pipeline may leave it out: that stands in
``model_index.json``.

    actor_rollout_ref.model.architecture=ToyPipeline    # registered as OmniToyForConditionalGeneration

Instead: give every launch and smoke script the string of the two ``register`` calls.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.scripts import ARCHITECTURE
from scaffold.check.model.shell import ShellScript
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC506"
NAME = "undeclared-architecture"
SEVERITY = "error"
CHECKLIST = ("W5", "S1", "pitfall 26")
APPLIES = Applies(non_diffusers=True)


def check(package: Package) -> Hits:
    """Look at the architecture of every script that trains the package."""
    known = package.architectures
    if len(known) != 1:
        return
    help = f"write +{ARCHITECTURE}={known[0]}"
    for script in (*package.launch_scripts, *package.e2e_scripts):
        if not _trains(script):
            continue
        override = script.override(ARCHITECTURE)
        if override is None and package.indexed:
            continue
        if override is None:
            place = next(item for item in script.overrides if item.key.startswith("actor_rollout_ref."))
            yield Hit(script, place.span, f"the script names no architecture for {package.name}", help)
        elif isinstance(override.usual, str) and override.usual not in known:
            text = f"architecture {override.usual!r} is not the registered {known[0]!r}"
            yield Hit(script, override.value_span, text, help)


def _trains(script: ShellScript) -> bool:
    return any(item.key.startswith("actor_rollout_ref.") for item in script.overrides)


FAILING = (
    Example("another string in the launch script", launch=("OmniToyForConditionalGeneration", "«ToyPipeline»")),
    Example("a wrong default in place", launch=("OmniToyForConditionalGeneration", "«${ARCH:-ToyPipeline}»")),
)
PASSING = (
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
