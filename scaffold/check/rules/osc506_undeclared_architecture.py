"""A script trains the package without naming its architecture, or names another one.

The checkpoint of a model that diffusers cannot load has no ``model_index.json`` that the architecture could be read
from. Without ``+actor_rollout_ref.model.architecture=…`` the trainer stops; with another string it takes another
adapter, or none. The ``+`` belongs to it: the key is not in Hydra's schema of the released versions.

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
        if override is None:
            place = next(item for item in script.overrides if item.key.startswith("actor_rollout_ref."))
            yield Hit(script, place.span, f"the script names no architecture for {package.name}", help)
        elif isinstance(override.value, str) and override.value not in known:
            text = f"architecture {override.value!r} is not the registered {known[0]!r}"
            yield Hit(script, override.value_span, text, help)


def _trains(script: ShellScript) -> bool:
    return any(item.key.startswith("actor_rollout_ref.") for item in script.overrides)


_LINE = "    +actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration"
FAILING = (
    Example(
        "another string in the launch script",
        {"launch": [(_LINE, _LINE.replace("OmniToyForConditionalGeneration", "«ToyPipeline»"))]},
    ),
    Example(
        "none in the smoke script",
        {
            "e2e": [
                (_LINE + " \\\n", ""),
                ("actor_rollout_ref.model.algorithm=flow_grpo", "«actor_rollout_ref.model.algorithm=flow_grpo»"),
            ]
        },
    ),
    Example(
        "a wrong variable",
        {
            "launch": [
                (_LINE, '    +actor_rollout_ref.model.architecture=«"$ARCH"»'),
                ("# Data:", "ARCH=OmniToyForGeneration\n# Data:"),
            ]
        },
    ),
)
PASSING = (
    Example("named in both scripts"),
    Example(
        "through a variable of the script",
        {
            "launch": [
                (_LINE, '    +actor_rollout_ref.model.architecture="$ARCH"'),
                ("# Data:", "ARCH=OmniToyForConditionalGeneration\n# Data:"),
            ]
        },
    ),
    Example(
        "through a variable of the environment",
        {"launch": [(_LINE, '    +actor_rollout_ref.model.architecture="$ARCH"')]},
    ),
    Example("diffusers reads it from the checkpoint", base="diffusers"),
)
