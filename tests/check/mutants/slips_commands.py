"""Scripts and wiring that say what was meant, option by option, and do something else as commands."""

from mutants.edit import text
from mutants.mutant import DEPLOY, E2E, LAUNCH, PATCH, Mutant, mutant

TRAINER = "python3 -m verl_omni.trainer.main_diffusion \\\n"
LAST = '"${trainer[@]}" "$@" 2>&1 | tee "$LOG"\n'
PLUS = "    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration\n"
ENGINE = "+actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config"


def script(name: str, items: tuple, rules: str, path: str, *changes: tuple[str, str]) -> Mutant:
    """Return a mutant of a text file."""
    return mutant(name, items, rules, *(text(path, old, new) for old, new in changes))


MUTANTS = [
    script("trainer without its options' line", ("W3",), "513", LAUNCH, (TRAINER, TRAINER[:-2] + "\n")),
    script("smoke test without its options' line", ("S1",), "513", E2E, (TRAINER, TRAINER[:-2] + "\n")),
    script("a comment cuts the command in two", ("W3",), "513", LAUNCH, (TRAINER, TRAINER + "    # all groups\n")),
    script(
        "group of options assigned twice",
        ("W3", "W5"),
        "513 506",
        LAUNCH,
        ("    actor_rollout_ref.model.lora_rank=64\n", ")\nmodel=(\n    actor_rollout_ref.model.lora_rank=64\n"),
    ),
    script(
        "smoke test's rollout options assigned twice",
        ("S1", "W4"),
        "513 505",
        E2E,
        (
            "    actor_rollout_ref.rollout.pipeline.height=256\n",
            ")\n\nrollout=(  # the image\n    actor_rollout_ref.rollout.pipeline.height=256\n",
        ),
    ),
    script("smoke test that is not waited for", ("S1",), "708", E2E, (LAST, LAST[:-1] + " &\n")),
    script("smoke test of no step", ("S1",), "513 708", E2E, ("_STEPS:-2}", "_STEPS:-0}")),
    script("training of no epoch", ("W3",), "513", LAUNCH, ("total_epochs=15", "total_epochs=0")),
    script(
        "architecture by a variable with another default",
        ("W5", 26),
        "506",
        LAUNCH,
        ("NUM_GPUS=4\n", "NUM_GPUS=4\nARCHITECTURE=${ARCHITECTURE:-BagelForConditionalGeneration}\n"),
        (PLUS, PLUS.replace("=Omni", "=${ARCHITECTURE}\n    #").replace("BagelForConditionalGeneration\n", "\n")),
    ),
    script(
        "architecture with another default in place",
        ("W5", 26),
        "506",
        E2E,
        (PLUS, PLUS.replace("=Omni", '="${ARCH:-').replace("Generation\n", 'Generation}"\n')),
    ),
    script(
        "deploy configuration of another engine", ("W4",), "505", LAUNCH, (ENGINE, ENGINE.replace("vllm_omni", "vllm"))
    ),
    script(
        "topology of several stages", ("W4",), "515", DEPLOY, ("pipeline: bagel_single_stage", "pipeline: bagel_think")
    ),
    script(
        "all names of the pipelines replaced",
        ("W2", 25),
        "502",
        PATCH,
        ("+__all__ += list(bagel", "+__all__ = list(bagel"),
    ),
    script(
        "all names of the pipelines replaced by a star",
        ("W2", 25),
        "502",
        PATCH,
        ("+__all__ += list(bagel_flow_grpo.__all__)", "+__all__ = [*bagel_flow_grpo.__all__]"),
    ),
]
