"""A script sets a key that the trainer's configuration does not have, or adds one that it has.

Hydra takes ``key=value`` for a key that is there, ``+key=value`` for one that is not. It stops at a name that is spelt
otherwise or that another release had. verl-omni keeps the whole configuration as text, in
``verl_omni/trainer/config/_generated_*_trainer.yaml``; with it the text decides.

    actor_rollout_ref.rollout.algo.sde_windows_size=2       # it is sde_window_size

Instead: write the key as the configuration has it. ``+`` goes before a key that the package alone reads.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ShellScript
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Hit, Hits
from scaffold.files.documents import MalformedError, parse_yaml

ID = "OSC525"
NAME = "unknown-override"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
_ENTRY = re.compile(r"^verl_omni\.trainer\.main_([a-z]+)(?:_v\d+)?$")
# Another part of the configuration: ``diffusion/model_engine=veomni_diffusion``.
_GROUP = re.compile(r"^\w+(?:/\w+)+(?:@[\w.]+)?=")


def check(package: Package) -> Hits:
    """Compare each override with the configuration of the trainer that the script starts."""
    for script in package.scripts:
        file = _configuration(package, script)
        if file is None:
            continue
        known = _keys(file.plain_text)
        added = {item.key for item in script.overrides if "+" in item.prefix}
        for item in script.overrides:
            if item.prefix == "+" and item.key in known and _is_set(file, item.key):
                yield Hit(script, item.span, f"{file.name} has {item.key} already: Hydra stops", "leave the + out")
            if item.prefix or item.key in known or any(f"{item.key}.".startswith(f"{key}.") for key in added):
                continue
            if _value(file, item.key) is not _ABSENT:
                continue
            text = f"{file.name} has no {item.key}: Hydra stops"
            near = _meant(item.key, known)
            yield Hit(
                script,
                item.span,
                text,
                f"write {near}" if near else f"leave it out, or write +{item.key} if it is read",
            )


def _configuration(package: Package, script: ShellScript) -> SourceFile | None:
    """Return the one configuration that a script starts from; None where the text does not tell."""
    words = [word.text for word in script.words]
    entries = {match[1] for word in words if (match := _ENTRY.match(word))}
    if len(entries) != 1 or any(map(_GROUP.match, words)) or (script.configuration and not script.presets):
        return None
    return package.project.source(f"verl_omni/trainer/config/_generated_{entries.pop()}_trainer.yaml")


def _keys(text: str) -> list[str]:
    """Return the keys of a configuration, dotted. Made of the lines: parsing takes longer than the whole rule."""
    found = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        name, colon, _ = line.partition(":")
        key = name.strip()
        if colon and key.isidentifier():
            depth = len(name) - len(name.lstrip())
            while path and path[-1][0] >= depth:
                path.pop()
            path.append((depth, key))
            found.append(".".join(part for _, part in path))
    return found


def _meant(key: str, known: list[str]) -> str | None:
    """Return the key that is spelt nearly so, beside it or in another place; one of another meaning is none."""
    folder, _, name = key.rpartition(".")
    beside = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == folder}
    near = get_close_matches(name, beside, n=1, cutoff=0.75)
    if near:
        return beside[near[0]]
    return next(iter(get_close_matches(key, [other for other in known if other.endswith(f".{name}")], n=1)), None)


def _is_set(file: SourceFile, key: str) -> bool:
    """Whether a key has a value in whose place Hydra lets ``+`` put no other: neither null nor keys nor entries."""
    return not isinstance(_value(file, key), (dict, list, type(None)))


def _value(file: SourceFile, key: str) -> Any:
    """Return what the parsed configuration has; None too where something other than keys is on the way there."""
    try:
        value = parse_yaml(file.plain_text)
    except MalformedError:
        return None
    for part in key.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part, _ABSENT)
    return value


_ABSENT: dict[str, Any] = {}
_CONFIG = {
    "verl_omni/trainer/config/_generated_diffusion_trainer.yaml": """\
actor_rollout_ref:
  model:
    path: null
    algorithm: flow_grpo
    fsdp_layer_prefixes: []
    lora_rank: 0
    target_modules: all
  rollout:
    name: null
    load_format: dummy
    layered_summon: false
    engine_kwargs: {vllm_omni: {}}
    pipeline:
      num_inference_steps: 10
    algo:
      noise_level: 0.7
      sde_type: sde
      sde_window_size: null
      sde_window_range: null
data:
  train_files: null
  val_files: null
  max_prompt_length: 512
"""
}
FAILING = (
    Example(
        "misspelt",
        _CONFIG,
        launch=(
            "actor_rollout_ref.rollout.algo.sde_window_size=2",
            "«actor_rollout_ref.rollout.algo.sde_windows_size=2»",
        ),
    ),
    Example(
        "in another place",
        _CONFIG,
        launch=("actor_rollout_ref.model.lora_rank=64", "«actor_rollout_ref.actor.lora_rank=64»"),
        also="OSC523",
    ),
    Example(
        "new, without +",
        _CONFIG,
        launch=(
            "+actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration",
            "«actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration»",
        ),
    ),
    Example(
        "there already, with +",
        _CONFIG,
        launch=(
            "actor_rollout_ref.rollout.load_format=safetensors",
            "«+actor_rollout_ref.rollout.load_format=safetensors»",
        ),
    ),
)
PASSING = (
    Example("as the configuration has them", _CONFIG),
    Example(
        "another strategy's configuration",
        _CONFIG,
        launch=(
            "main_diffusion \\\n",
            "main_diffusion \\\n    diffusion/model_engine=veomni_diffusion \\\n    actor_rollout_ref.actor.veomni.ulysses=2 \\\n",
        ),
    ),
    Example(
        "below a key that the script adds",
        _CONFIG,
        launch=('    "$@"', "    +data.toy='{}' \\\n    data.toy.size=2 \\\n    \"$@\""),
    ),
    Example(
        "added whatever is there",
        _CONFIG,
        launch=(
            "actor_rollout_ref.rollout.load_format=safetensors",
            "++actor_rollout_ref.rollout.load_format=safetensors",
        ),
    ),
)
