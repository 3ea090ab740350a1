"""A launch script leaves out an option that the package demands and its neighbours give.

An adapter that needs something of the configuration, a second tokenizer, an agent loop of its own, raises at the first
request and says which option brings it. By then the trainer has loaded every model. The recipe's README, or another
script beside it, shows that the option belongs to the recipe.

    raise ValueError("configure `actor_rollout_ref.model.extra_tokenizers` …")     # and the script does not

What no run goes without is asked for in any case: the model's place, the rollout engine, and the data, for which the
trainer would take those of another recipe. So is an option without which others of the script do nothing: the rank of a
LoRA, the file of a reward function.

Instead: give the option in every script that trains the package.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.package import ALGORITHM, Package
from scaffold.check.model.shell import MODEL, ROLLOUT, ShellScript, lora_rank, truth
from scaffold.check.rule import Hit, Hits

ID = "OSC523"
NAME = "option-left-out"
SEVERITY = "error"
CHECKLIST = ("W3",)
_OPTION = r"\b(?:actor_rollout_ref|data|algorithm|trainer|reward)(?:\.[A-Za-z_]\w*)+"

# What each script gives, and what comes of a run without it.
_ALWAYS = {
    "actor_rollout_ref.model.path": "the trainer has no model",
    "data.train_files": "the trainer takes the data of another recipe",
    "data.val_files": "the trainer takes the data of another recipe",
    f"{ROLLOUT}name": "the trainer's configuration has no engine in its place",
}
# What makes options that a script gives idle where it is left out.
_WITHOUT = {
    f"{MODEL}lora_rank": ((f"{MODEL}lora_alpha", f"{MODEL}target_modules"), "the whole model is trained, without LoRA"),
    "reward.custom_reward_function.path": (
        ("reward.custom_reward_function.name",),
        "the trainer goes by the data source, not by this function",
    ),
}
_LAYERED, _FORMAT = f"{ROLLOUT}layered_summon", f"{ROLLOUT}load_format"


def check(package: Package) -> Hits:
    """Compare the scripts of a folder with each other, for each option that the package's errors name."""
    for script in package.scripts:
        if not (_trains(package, script) and _starts(script)):
            continue
        for option, why in _ALWAYS.items():
            elsewhere = option.startswith(MODEL) and script not in package.launch_scripts
            offline = option.startswith(ROLLOUT) and package.objective != "policy_gradient"
            if not (elsewhere or offline or _gives(script, option)):
                yield Hit(script, script.overrides[0].span, f"{option} is left out here, and {why}", f"give {option}")
        yield from _idle(script)
    for option, place in _demanded(package).items():
        folders: dict[str, list[ShellScript]] = {}
        for script in package.project.example_scripts:
            folders.setdefault(script.folder, []).append(script)
        for folder, scripts in folders.items():
            scripts = [script for script in scripts if _trains(package, script)]
            giving = [script for script in scripts if _gives(script, option)]
            if not giving and not (scripts and _speaks(package, f"{folder}/README.md", option)):
                continue
            for script in scripts:
                if script not in giving:
                    start = next(item for item in script.overrides if item.key.startswith(ROLLOUT))
                    text = f"{option} is left out here, and {place} raises without it"
                    yield Hit(script, start.span, text, f"give {option}, as {_who(giving)} does")


def _idle(script: ShellScript) -> Hits:
    """Look for options that do nothing, or raise, without another one."""
    for option, (idle, why) in _WITHOUT.items():
        given = next((item for name in idle if (item := script.override(name)) is not None), None)
        if given is not None and not _gives(script, option):
            yield Hit(script, given.span, f"{option} is left out here, and {why}", f"give {option}")
    layered = script.override(_LAYERED)
    if layered is not None and truth(layered.value) and lora_rank(script) != 0 and not _gives(script, _FORMAT):
        text = f"{_FORMAT} is left out here, and layered_summon sends LoRA only to an engine that has the weights"
        yield Hit(script, layered.span, text, f"give {_FORMAT}=safetensors")


def _starts(script: ShellScript) -> bool:
    return any(word.text.startswith("verl_omni.trainer") for word in script.words)


def _demanded(package: Package) -> dict[str, str]:
    """Return the options that errors of the package name, with the file that raises them."""
    found: dict[str, str] = {}
    for file in package.files:
        if b"actor_rollout_ref." not in file.data:
            continue
        for error in file.index.nodes(ast.Raise):
            parts = [n.value for n in file.index.nodes(ast.Constant, error) if isinstance(n.value, str)]
            for option in re.findall(_OPTION, "".join(parts)):
                found.setdefault(option, file.name)
    return found


def _trains(package: Package, script: ShellScript) -> bool:
    """Whether a script may train the package: it makes rollouts, and names no algorithm of another."""
    if not any(item.key.startswith(ROLLOUT) for item in script.overrides):
        return False
    if any(word.text in ("source", ".") or word.text.startswith("--config-") for word in script.words):
        return False
    named = script.override(ALGORITHM)
    return named is None or not isinstance(named.value, str) or named.value in package.algorithms


def _gives(script: ShellScript, option: str) -> bool:
    return any(item.key == option or item.key.startswith(f"{option}.") for item in script.overrides) or any(
        f"{option}=" in word.text for word in script.words
    )


def _speaks(package: Package, path: str, option: str) -> bool:
    return f"{option}=" in package.project.text(path)


def _who(giving: list[ShellScript]) -> str:
    return giving[0].name if giving else "the README beside it"


FAILING = (
    Example(
        "the data",
        launch=[
            ('    data.train_files="$DATA_DIR/train.parquet" \\\n', ""),
            ("actor_rollout_ref.model.path=", "«»actor_rollout_ref.model.path="),
        ],
    ),
    Example(
        "the rank",
        launch=[
            ("    actor_rollout_ref.model.lora_rank=64\n", ""),
            ("actor_rollout_ref.model.target_modules=", "«actor_rollout_ref.model.target_modules="),
            ('"o_proj_gen"]\'\n', '"o_proj_gen"]\'»\n'),
        ],
    ),
    Example(
        "given by the script beside it",
        {
            "examples/flowgrpo_trainer/toy/run_toy_pickscore_lora.sh": (
                "#!/usr/bin/env bash\npython3 -m verl_omni.trainer.main_diffusion \\\n    data.train_files=train.parquet \\\n    data.val_files=test.parquet \\\n    actor_rollout_ref.model.path=toy \\\n    +actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration \\\n"
                "    actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]' \\\n"
                "    actor_rollout_ref.model.lora_rank=64 \\\n"
                '    actor_rollout_ref.model.target_modules=\'["q_proj_gen", "k_proj_gen", "v_proj_gen", "o_proj_gen"]\' \\\n    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$(dirname "$0")/toy_deploy_config.yaml" \\\n    actor_rollout_ref.rollout.name=vllm_omni \\\n'
                "    actor_rollout_ref.rollout.agent.default_agent_loop=toy_agent\n"
            )
        },
        rollout=(
            "CFG_DEFAULTS}))\n",
            "CFG_DEFAULTS}))\n"
            '        if not extra_args.get("raw_text"):\n            raise ValueError("set actor_rollout_ref.rollout.agent.default_agent_loop=toy_agent")\n',
        ),
        launch=("actor_rollout_ref.rollout.name=vllm_omni", "«actor_rollout_ref.rollout.name=vllm_omni»"),
    ),
    Example(
        "named in the README",
        rollout=(
            "CFG_DEFAULTS}))\n",
            "CFG_DEFAULTS}))\n"
            '        if not extra_args.get("raw_text"):\n            raise ValueError("set actor_rollout_ref.rollout.agent.default_agent_loop=toy_agent")\n',
        ),
        readme=(
            "run_toy_lora.sh\n",
            "run_toy_lora.sh\n    actor_rollout_ref.rollout.agent.default_agent_loop=toy_agent\n\n",
        ),
        launch=("actor_rollout_ref.rollout.name=vllm_omni", "«actor_rollout_ref.rollout.name=vllm_omni»"),
    ),
)
PASSING = (
    Example(
        "named in an error alone",
        rollout=(
            "CFG_DEFAULTS}))\n",
            "CFG_DEFAULTS}))\n"
            '        if not extra_args.get("raw_text"):\n            raise ValueError("set actor_rollout_ref.rollout.agent.default_agent_loop=toy_agent")\n',
        ),
    ),
)
