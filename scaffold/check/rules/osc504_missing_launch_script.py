"""No script below ``examples/`` trains the package.

A recipe is part of an integration: which modules get LoRA, how many steps, which window and noise level. Without a
script that says so nobody can repeat the run that the integration was made for, and the smoke test has nothing to
follow.

Instead: add ``examples/<algorithm>_trainer/<model>/run_….sh`` with the architecture and the options of the recipe.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import RECIPES, Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC504"
NAME = "missing-launch-script"
SEVERITY = "error"
CHECKLIST = ("W3",)
APPLIES = Applies(non_diffusers=True)
HELP = "add a launch script for it below examples/"


def check(package: Package) -> Hits:
    """Look for a script; only where the examples of the tree can be seen."""
    project = package.project
    if project.alone or not package.registrations or package.launch_scripts:
        return
    if not project.complete and not any(project.files(folder.rstrip("/")) for folder in RECIPES):
        return
    file = package.init or package.files[0]
    yield Hit(file, Span(1, 1, 1, 1), f"no script below examples/ trains {package.name}")


FAILING = (
    Example("no script", launch=None, init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter")),
    Example(
        "a script that trains something else",
        {
            "examples/flowgrpo_trainer/other/run_other_lora.sh": (
                "python3 -m verl_omni.trainer.main_diffusion \\\n    +actor_rollout_ref.model.architecture=OtherPipeline\n"
            )
        },
        launch=None,
        init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter"),
    ),
)
PASSING = (Example("a script"),)
