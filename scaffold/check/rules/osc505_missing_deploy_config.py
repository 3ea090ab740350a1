"""A script trains the package without a deploy configuration, or names one that is not there.

vllm-omni needs a topology for a pipeline that no ``model_index.json`` describes: which stages there are and on which
devices. Without ``engine_kwargs.vllm_omni.deploy_config`` the engine takes a default that does not know the model; a
path that leads nowhere stops the run after the trainer's workers have started.

    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$PWD/examples/toy/toy.yml"   # no such file

A pipeline that the engine finds by ``config.json`` needs none; ``needed = false`` under ``[deploy]`` of
``scaffold.toml`` says so. Nor does one under whose own name the package is registered: ``model_index.json`` has it.

Instead: keep the YAML file beside the launch script and name it there and in the smoke script.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ROLLOUT, ShellScript
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC505"
NAME = "missing-deploy-config"
SEVERITY = "error"
CHECKLIST = ("W4",)
APPLIES = Applies(non_diffusers=True)
DEPLOY = f"{ROLLOUT}engine_kwargs.vllm_omni.deploy_config"
OTHER = re.compile(rf"{re.escape(ROLLOUT)}engine_kwargs\.\w+\.deploy_config")


def check(package: Package) -> Hits:
    """Look at the deploy configuration of each script that uses vllm-omni for rollouts."""
    project = package.project
    if package.facts.text("deploy", "needed") == "false":
        return
    for script in package.scripts:
        if not any(item.key.startswith(ROLLOUT) for item in script.overrides):
            continue
        override = script.override(DEPLOY)
        if override is None:
            other = next((item for item in script.overrides if OTHER.fullmatch(item.key)), None)
            if other is not None:
                text = "the deploy configuration is given to another engine than vllm_omni"
                yield Hit(script, other.span, text, f"write +{DEPLOY}=FILE")
            elif not _elsewhere(script) and not package.indexed:
                place = next(item for item in script.overrides if item.key.startswith(ROLLOUT))
                yield Hit(script, place.span, "the script names no deploy configuration", f"add +{DEPLOY}=FILE")
            continue
        if not override.prefix:
            text = "the configuration has no such key, and Hydra refuses to set it without +"
            yield Hit(script, override.span, text, f"write +{DEPLOY}=FILE")
        if override.value == "":
            yield Hit(
                script, override.value_span, "the name of the deploy configuration is empty", f"write +{DEPLOY}=FILE"
            )
        for mention in script.paths:
            path = mention.path
            if path is None or not path.endswith((".yaml", ".yml")) or project.tree.exists(path):
                continue
            folder = path.rpartition("/")[0]
            if project.complete or (not project.alone and project.files(folder)):
                yield Hit(script, mention.span, f"the deploy configuration {path} is not there", f"add {path}")


def _elsewhere(script: ShellScript) -> bool:
    """Whether options of the engine come from a file or a variable that cannot be seen."""
    return any(f"{ROLLOUT}engine_kwargs" in word.text for word in script.words) or any(
        word.text.startswith(("--config-name", "--config-path", "--config-dir")) for word in script.words
    )


FAILING = (
    Example(
        "without the plus",
        launch=(
            '+actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"',
            '«actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"»',
        ),
    ),
    Example(
        "given to another engine",
        launch=(
            '+actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"',
            '«+actor_rollout_ref.rollout.engine_kwargs.vllm.deploy_config="$DEPLOY_CONFIG"»',
        ),
    ),
    Example(
        "an empty variable",
        e2e=[
            ("$PWD/examples/flowgrpo_trainer/toy/toy_deploy_config.yaml", ""),
            ('"$DEPLOY_CONFIG"', '«"$DEPLOY_CONFIG"»'),
        ],
    ),
)
PASSING = (
    Example(
        "registered under the upstream pipeline's own name",
        launch=[
            ("OmniToyForConditionalGeneration", "ToyPipeline"),
            ('    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG" \\\n', ""),
        ],
        e2e=("OmniToyForConditionalGeneration", "ToyPipeline"),
        training=('"OmniToyForConditionalGeneration"', '"ToyPipeline"'),
        rollout=('"OmniToyForConditionalGeneration"', '"ToyPipeline"'),
    ),
    Example(
        "a path that only the user knows",
        e2e=("PWD/examples/flowgrpo_trainer/toy/toy_deploy_config.yaml", "{DEPLOY_CONFIG:?set it}"),
    ),
)
