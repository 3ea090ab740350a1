"""A script does not name the library that holds the package on both sides.

VeRL-Omni imports ``actor_rollout_ref.model.external_lib`` before it looks a training adapter up, and
``actor_rollout_ref.rollout.external_lib`` before it asks for the pipeline's class. A package outside of its tree is not
registered where the key is missing: the trainer, or the rollout server, says that the architecture is unknown.

    actor_rollout_ref.model.external_lib=toy_flow_grpo        # and no actor_rollout_ref.rollout.external_lib

Instead: set both keys to the package.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Hit, Hits

ID = "OSC541"
NAME = "unnamed-library"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
HELP = "set actor_rollout_ref.model.external_lib and actor_rollout_ref.rollout.external_lib to the package"
KEYS = ("actor_rollout_ref.model.external_lib", "actor_rollout_ref.rollout.external_lib")


def check(package: Package) -> Hits:
    """Compare the two keys of every script that starts a training of the package."""
    for script in package.scripts:
        named = {key: found for key in KEYS if (found := script.override(key)) is not None}
        missing = [key for key in KEYS if key not in named]
        outside = [found for found in named.values() if not found.value.startswith("verl_omni.")]
        if len(named) == len(KEYS) or not script.overrides or not (outside or package.project.external):
            continue  # verl-omni registers the packages of its own tree whoever names them
        at = next(iter(named.values()), script.overrides[0])
        yield Hit(script, at.span, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")


_BOTH = "actor_rollout_ref.model.external_lib=toy_flow_grpo\n    actor_rollout_ref.rollout.external_lib=toy_flow_grpo"
FAILING = (
    Example(
        "the rollout's side is forgotten",
        launch=("model=(\n", "model=(\n    «actor_rollout_ref.model.external_lib=toy_flow_grpo»\n"),
    ),
)
PASSING = (
    Example("a package of the tree"),
    Example(
        "one of the tree that is named besides",
        launch=("model=(\n", "model=(\n    actor_rollout_ref.model.external_lib=verl_omni.pipelines.toy_flow_grpo\n"),
    ),
    Example("both sides are named", launch=("model=(\n", f"model=(\n    {_BOTH}\n")),
)
