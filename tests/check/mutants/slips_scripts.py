"""Small slips in the scripts."""

from mutants.edit import delete, move, text
from mutants.mutant import (
    DEPLOY,
    DUMMY,
    LAUNCH,
    Mutant,
    mutant,
)

PLUS = "    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration\n"


def script(name: str, items: tuple, rules: str, path: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of a text file."""
    return mutant(name, items, rules, text(path, old, new))


MUTANTS = [
    # Scripts
    mutant("launch script gone", ("W3",), "504 510", delete(LAUNCH)),
    mutant(
        "launch script beside its place",
        ("W3",),
        "504 510",
        *move(LAUNCH, "examples/flowgrpo_trainer/run_bagel_ocr_lora.sh.bak"),
    ),
    script(
        "launch script of another trainer",
        ("W3",),
        "513",
        LAUNCH,
        "python3 -m verl_omni.trainer.main_diffusion",
        "python3 -m verl.trainer.main_ppo",
    ),
    script(
        "launch script runs nothing",
        ("W3",),
        "513 504",
        LAUNCH,
        'python3 -m verl_omni.trainer.main_diffusion \\\n    "${data[@]}" "${model[@]}" "${actor[@]}" "${rollout[@]}" "${reward[@]}" "${trainer[@]}" "$@"\n',
        "",
    ),
    script(
        "overrides of the model forgotten",
        ("W3", "W5"),
        "506 513",
        LAUNCH,
        '"${data[@]}" "${model[@]}" "${actor[@]}"',
        '"${data[@]}" "${actor[@]}"',
    ),
    script(
        "overrides of the rollout forgotten",
        ("W3", "W4"),
        "505 513",
        LAUNCH,
        '"${actor[@]}" "${rollout[@]}"',
        '"${actor[@]}"',
    ),
    mutant("deploy config gone", ("W4",), "505 510", delete(DEPLOY)),
    mutant(
        "deploy config renamed", ("W4",), "505 510", *move(DEPLOY, "examples/flowgrpo_trainer/bagel/bagel_deploy.yaml")
    ),
    script("deploy config misspelt", ("W4",), "505 510", LAUNCH, "/bagel_deploy_config.yaml", "/bagel_deploy.yaml"),
    script(
        "deploy config not handed on",
        ("W4",),
        "505",
        LAUNCH,
        '    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"\n',
        "",
    ),
    script(
        "deploy config handed on without plus",
        ("W4",),
        "505",
        LAUNCH,
        '    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"\n',
        '    actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"\n',
    ),
    script("deploy config without stages", ("W4",), "505 515", DEPLOY, "stages:\n", "levels:\n"),
    script("deploy config that is no YAML", ("W4",), "505 515", DEPLOY, "stages:\n", "stages: [\n"),
    script("architecture not named", ("W5",), "506", LAUNCH, PLUS, ""),
    script("architecture without plus", ("W5",), "506", LAUNCH, PLUS, PLUS.replace("+", "")),
    script("architecture of another model", ("W5", 26), "506", LAUNCH, PLUS, PLUS.replace("Bagel", "Begal")),
    script("architecture in a comment", ("W5",), "506", LAUNCH, PLUS, f"    #{PLUS.strip()}\n"),
    script(
        "architecture under another key", ("W5",), "506", LAUNCH, PLUS, PLUS.replace("model.architecture", "model.arch")
    ),
    script(
        "algorithm of another package",
        (26,),
        "509",
        LAUNCH,
        "actor_rollout_ref.model.algorithm=flow_grpo",
        "actor_rollout_ref.model.algorithm=grpo",
    ),
    script("LoRA on modules that are not there", (18,), "507", LAUNCH, '"q_proj_moe_gen", ', '"q_proj_gen", '),
    script(
        "LoRA on nothing",
        (18,),
        "507",
        LAUNCH,
        '\'["q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen", "mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"]\'',
        "'[]'",
    ),
    script(
        "LoRA on the text's pathway",
        (18,),
        "507",
        LAUNCH,
        '"mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"',
        '"mlp_gen.gate_proj", "mlp_gen.up_proj", "mlp_gen.down_proj"',
    ),
    script("LoRA on norms", (18,), "507", LAUNCH, '"q_proj_moe_gen", ', '"q_norm_moe_gen", '),
    script("layers under another prefix", (18,), "508", LAUNCH, "'[\"layers.\"]'", "'[\"model.layers.\"]'"),
    script(
        "window beyond the steps, once more",
        ("R6",),
        "511",
        LAUNCH,
        "sde_window_range='[0, 7]'",
        "sde_window_range='[0, 15]'",
    ),
    script("window larger than its range, once more", ("R6",), "511", LAUNCH, "sde_window_size=2", "sde_window_size=8"),
    script(
        "noise level of zero",
        (7,),
        "511",
        LAUNCH,
        "actor_rollout_ref.rollout.algo.noise_level=0.7",
        "actor_rollout_ref.rollout.algo.noise_level=0.0",
    ),
    script(
        "data script misspelt",
        ("D1", "W3"),
        "510",
        DUMMY,
        "data_process/bagel_ocr.py",
        "data_process/bagel_ocr_data.py",
    ),
    script(
        "rollout engine of text models",
        ("W3",),
        "513",
        LAUNCH,
        "actor_rollout_ref.rollout.name=vllm_omni",
        "actor_rollout_ref.rollout.name=vllm",
    ),
    script(
        "prompt lengths differ",
        ("D2", 43),
        "602",
        LAUNCH,
        "data.max_prompt_length=$MAX_PROMPT_LENGTH",
        "data.max_prompt_length=128",
    ),
    script(
        "rollout's prompt length differs",
        ("D2", 43),
        "602",
        LAUNCH,
        "actor_rollout_ref.rollout.pipeline.max_sequence_length=$MAX_PROMPT_LENGTH",
        "actor_rollout_ref.rollout.pipeline.max_sequence_length=128",
    ),
]
