"""Small slips in smoke test and CPU tests."""

from mutants.edit import delete, move, swap, text
from mutants.mutant import (
    CPU_TEST,
    DUMMY,
    E2E,
    PATCH,
    Mutant,
    mutant,
)

PLUS = "    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration\n"


def script(name: str, items: tuple, rules: str, path: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of a text file."""
    return mutant(name, items, rules, text(path, old, new))


MUTANTS = [
    # Tests
    mutant("smoke test gone", ("S1",), "702 510", delete(E2E)),
    script(
        "smoke test not run",
        ("S2", 37),
        "701",
        PATCH,
        "+    bash tests/special_e2e/run_flowgrpo_bagel.sh",
        "+    true tests/special_e2e/run_flowgrpo_bagel.sh",
    ),
    script(
        "runner calls another script, once more",
        ("S2", 37),
        "701",
        PATCH,
        "run_flowgrpo_bagel.sh",
        "run_flowgrpo_bagle.sh",
    ),
    script(
        "runner's call is a comment",
        ("S2", 37),
        "701",
        PATCH,
        '+run_test 7 "Bagel FlowGRPO trainer e2e" \\\n+    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\\n+    bash tests',
        '+# run_test 7 "Bagel FlowGRPO trainer e2e" \\\n+#    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\\n+#    bash tests',
    ),
    script("smoke test without architecture", ("S1", "W5"), "506", E2E, PLUS, ""),
    script(
        "smoke test of another architecture", ("S1", "W5", 26), "506", E2E, PLUS, PLUS.replace("OmniBagel", "Bagel")
    ),
    script(
        "smoke test makes no data",
        ("S1",),
        "708",
        E2E,
        'python3 tests/special_e2e/create_dummy_bagel_data.py \\\n    --local_save_dir "$DATA_DIR" \\\n    --model_path "$MODEL_PATH" \\\n    --max_prompt_length "$MAX_PROMPT_LENGTH" \\\n    --train_size "$TRAIN_BATCH" \\\n    --val_size 4\n',
        "",
    ),
    script("smoke test cannot fail", ("S1",), "708", E2E, "set -xeuo pipefail", "set -x"),
    script(
        "smoke test swallows its failure",
        ("S1",),
        "708",
        E2E,
        '"$@" 2>&1 | tee "$LOG"\n',
        '"$@" 2>&1 | tee "$LOG" || true\n',
    ),
    script(
        "smoke test ends early",
        ("S1",),
        "708",
        E2E,
        'cd "$(dirname "${BASH_SOURCE[0]}")/../.."\n',
        'cd "$(dirname "${BASH_SOURCE[0]}")/../.."\nexit 0\n',
    ),
    script(
        "smoke test trains nothing",
        ("S1",),
        "702 708 513",
        E2E,
        "python3 -m verl_omni.trainer.main_diffusion",
        "echo python3 -m verl_omni.trainer.main_diffusion",
    ),
    script("dummy data script misspelt", ("S1",), "510", E2E, "create_dummy_bagel_data.py", "create_dummy_bagel.py"),
    mutant("dummy data gone", ("S1",), "510 702", delete(DUMMY)),
    script("dummy data's option misspelt", ("S1",), "519", E2E, "--local_save_dir", "--save_dir"),
    script("data script's option misspelt", ("S1",), "519", DUMMY, '"--input_dir", raw', '"--input_folder", raw'),
    mutant("CPU test gone", ("S1",), "705", delete(CPU_TEST)),
    mutant("CPU test renamed", ("S1",), "706", *move(CPU_TEST, "tests/pipelines/test_bagel_flow_grpo.py")),
    mutant(
        "CPU test without an assertion",
        ("S1",),
        "707",
        swap(
            CPU_TEST,
            "test_both_adapters_are_registered_under_one_key",
            "assert DiffusionModelBase.get_class(tiny_model_config()) is BagelDiffusion\nassert VllmOmniPipelineBase.get_class(ARCHITECTURE, ALGORITHM) is BagelPipelineWithLogProb",
            "DiffusionModelBase.get_class(tiny_model_config())",
        ),
    ),
    mutant(
        "CPU test that is always true",
        ("S1",),
        "707",
        swap(
            CPU_TEST,
            "test_padding_changes_nothing",
            "assert (together[i] - alone[0]).abs().max() <= 1e-6",
            "assert True",
        ),
    ),
    mutant(
        "CPU test with a comparison left out",
        ("S1",),
        "707",
        swap(
            CPU_TEST,
            "test_padding_changes_nothing",
            "assert (together[i] - alone[0]).abs().max() <= 1e-6",
            "(together[i] - alone[0]).abs().max() <= 1e-6",
        ),
    ),
    mutant(
        "CPU test skipped",
        ("S1",),
        "707",
        text(CPU_TEST, "def test_padding_changes_nothing", "@pytest.mark.skip\ndef test_padding_changes_nothing"),
    ),
    mutant(
        "architecture of the CPU test differs",
        ("W5", 26),
        "501",
        swap(CPU_TEST, "", '"OmniBagelForConditionalGeneration"', '"BagelForConditionalGeneration"'),
    ),
]
