"""The rendered smoke script, run with a trainer that prints what the test says: when it passes, and what it tells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

STEP = "\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - critic/rewards/mean:{reward} - {difference}timing_s/gen:1.5\n"
DIFFERENCE = "rollout_corr/logprob_abs_diff/ts_0.9:0.5 - rollout_corr/logprob_abs_diff_max:np.float64({}) - "
# The trainer's command prints a file and keeps its arguments; what builds checkpoint and data does nothing.
PYTHON = """#!/bin/sh
case "$1" in
    -m) shift 2; printf '%s\\n' "$@" > "$FAKE/arguments"; cat "$FAKE/log"; exit "$(cat "$FAKE/code")" ;;
    -) exec "{python}" "$@" ;;
    *) mkdir -p "$DATA_DIR" ;;
esac
"""

SMOKE = "tests/special_e2e/run_flowgrpo_bagel.sh"
LAUNCH = "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def smoke(release_trees: dict[str, Path], tmp_path: Path) -> Run:
    """Return a function that runs the script of a release on a log of the trainer."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python3").write_text(PYTHON.format(python=sys.executable))
    (tools / "python3").chmod(0o755)

    # The script asks whether there is a GPU by a program's name: the machine of the test does not answer that.
    for name in ("awk", "cat", "dirname", "mkdir", "tee", "sh"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)

    def run(  # type: ignore[no-untyped-def]
        log: str, *overrides: str, code: int = 0, release: str = "main", script: str = SMOKE, **environment: str
    ):
        (tmp_path / "log").write_text(log)
        (tmp_path / "code").write_text(str(code))
        bash = shutil.which("bash")
        assert bash is not None
        return subprocess.run(
            [bash, str(release_trees[release] / script), *overrides],
            env={
                "PATH": str(tools),
                "HOME": str(tmp_path),
                "DATA_DIR": str(tmp_path / "data"),
                "FAKE": str(tmp_path),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def steps(*differences: str, first: int = 1) -> str:
    """The trainer's lines of steps with these differences; the reward rises by 0.01 a step."""
    lines = [
        STEP.format(step=i, reward=0.5 + 0.01 * i, difference=DIFFERENCE.format(value) if value else "")
        for i, value in enumerate(differences, start=first)
    ]
    return "Ray starts\n" + "".join(lines)


def test_its_last_line_says_what_was_seen(smoke: Run) -> None:
    done = smoke("step:0 - val-core/x/acc/mean@1:0.1\n" + steps("1e-4", "2.5e-04"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "FlowGRPO smoke test of BAGEL-7B-MoT passed: 2 steps, log-probs of rollout and training at most 2.5e-04 apart"
        " (limit 5.0e-03), reward 0.5100 at first and 0.5200 at last"
    )


def test_samples_that_are_lost_fail_it_by_a_stated_rule(smoke: Run) -> None:
    """A step of 4 prompts with 2 images each: one of 16 samples is lost."""
    lost = "(Worker pid=8) ERROR: Error in _run_prompt for uid=ab\nValueError: no prompt\n"
    overrides = ("data.train_batch_size=4", "actor_rollout_ref.rollout.n=2")
    done = smoke(lost + steps("1e-4", "1e-4"), *overrides)
    assert done.returncode == 1
    assert "1 of 16 samples were lost, more than MAX_LOST_FRACTION=0" in done.stderr
    assert smoke(lost + steps("1e-4", "1e-4"), *overrides, MAX_LOST_FRACTION="0.1").returncode == 0
    assert smoke(2 * lost + steps("1e-4", "1e-4"), *overrides, MAX_LOST_FRACTION="0.1").returncode == 1


def test_a_training_that_loses_more_than_it_may_fails_at_its_end(smoke: Run, tmp_path: Path) -> None:
    lost = "(Worker pid=8) ERROR: Error in _run_prompt for uid=ab\nValueError: no prompt\n"
    overrides = ("data.train_batch_size=4", "actor_rollout_ref.rollout.n=2")
    done = smoke(lost + steps("1e-4", "1e-4"), *overrides, script=LAUNCH)
    assert done.returncode == 1
    assert "1 of 16 samples were lost" in done.stdout
    assert f"more than MAX_LOST_FRACTION=0.01: see Error in _run_prompt in {tmp_path}/data/train.log" in done.stderr
    assert smoke(lost + steps("1e-4", "1e-4"), script=LAUNCH).returncode == 0  # of 1,024
    done = smoke(lost + steps("1e-4", "1e-4"), *overrides, script=LAUNCH, MAX_LOST_FRACTION="0.1")
    assert done.returncode == 0, done.stderr
    assert smoke(steps("1e-4", "1e-4"), script=LAUNCH, code=3).returncode == 3


def test_images_of_every_step_are_kept_where_that_is_asked_for(smoke: Run, tmp_path: Path) -> None:
    for given, wanted in (({}, "null"), ({"ROLLOUT_DATA_DIR": "/data/images"}, "/data/images")):
        assert smoke(steps("1e-4", "1e-4"), script=LAUNCH, **given).returncode == 0
        assert f"trainer.rollout_data_dir={wanted}" in (tmp_path / "arguments").read_text().splitlines()


def test_the_log_is_kept(smoke: Run, tmp_path: Path) -> None:
    assert smoke(steps("0.0", "0.0")).returncode == 0
    assert (tmp_path / "data/train.log").read_text() == steps("0.0", "0.0")
    assert smoke(steps("0.0", "0.0"), LOG=str(tmp_path / "other.log")).returncode == 0
    assert (tmp_path / "other.log").is_file()


@pytest.mark.parametrize(
    ("overrides", "difference", "passes"),
    [
        ((), "4e-3", True),
        ((), "6e-3", False),
        ((), "nan", False),
        (("actor_rollout_ref.rollout.dtype=float32",), "1.2e-7", True),
        (("actor_rollout_ref.rollout.dtype=float32",), "4.3e-5", False),
        (("actor_rollout_ref.rollout.dtype=float32", "actor_rollout_ref.model.lora_rank=0"), "6.6e-5", True),
        (("actor_rollout_ref.rollout.dtype=float32", "actor_rollout_ref.model.lora_rank=0"), "6e-3", False),
    ],
)
def test_a_difference_above_the_limit_of_its_dtype_fails(
    smoke: Run, overrides: tuple[str, ...], difference: str, passes: bool
) -> None:
    done = smoke(steps("1e-8", difference), *overrides)
    assert (done.returncode == 0) is passes, done.stderr
    assert passes or "log-probs of rollout and training are" in done.stderr


def test_kernels_of_a_gpu_may_lie_further_apart_in_float32(smoke: Run, tmp_path: Path) -> None:
    (tmp_path / "bin/nvidia-smi").symlink_to(tmp_path / "bin/python3")
    assert smoke(steps("1e-8", "4.3e-5"), "actor_rollout_ref.rollout.dtype=float32").returncode == 0
    assert smoke(steps("1e-8", "2e-4"), "actor_rollout_ref.rollout.dtype=float32").returncode == 1


def test_the_limit_can_be_given(smoke: Run) -> None:
    assert smoke(steps("1e-3", "1e-3"), LOGPROB_LIMIT="1e-4").returncode == 1
    assert smoke(steps("1e-2", "1e-2"), LOGPROB_LIMIT="2e-2").returncode == 0


def test_an_error_of_a_worker_fails_though_the_trainer_ends_well(smoke: Run) -> None:
    done = smoke("(Worker pid=3) ERROR Error executing method 'update_weights'.\n" + steps("1e-8", "1e-8"))
    assert done.returncode == 1
    assert "a rollout worker failed" in done.stderr


def test_a_trainer_that_fails_fails_it(smoke: Run) -> None:
    assert smoke(steps("1e-8", "1e-8"), code=3).returncode == 3


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (steps("1e-8"), "no step 2"),
        ("", "no step 2"),
        (steps("", ""), "is rollout.calculate_log_probs on"),
    ],
)
def test_a_run_that_shows_nothing_fails(smoke: Run, log: str, said: str) -> None:
    done = smoke(log)
    assert done.returncode == 1
    assert said in done.stderr


def test_arguments_come_last_and_the_steps_asked_for_are_looked_at(smoke: Run, tmp_path: Path) -> None:
    overrides = ("trainer.total_training_steps=3", "trainer.resume_mode=auto", "actor_rollout_ref.rollout.n=8")
    done = smoke(steps("1e-8", first=3), *overrides)
    assert done.returncode == 0, done.stderr
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given[-3:] == list(overrides)
    assert smoke(steps("1e-8", "1e-8"), *overrides).returncode == 1


def test_sizes_come_from_the_environment(smoke: Run, tmp_path: Path) -> None:
    sizes = {"NUM_GPUS": "1", "GROUP_SIZE": "8", "TRAIN_BATCH": "4", "MICRO_BATCH": "8", "TOTAL_TRAIN_STEPS": "1"}
    assert smoke(steps("1e-8"), **sizes).returncode == 0
    given = (tmp_path / "arguments").read_text().splitlines()
    for wanted in (
        "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.n=8",
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "trainer.total_training_steps=1",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.rollout_attn_backend=TORCH_SDPA",
        "actor_rollout_ref.rollout.val_kwargs.algo.noise_level=0.0",
    ):
        assert wanted in given


def test_a_release_that_reports_no_difference_is_not_asked_for_it(smoke: Run) -> None:
    done = smoke(steps("", ""), release="v0.1.0")
    assert done.returncode == 0, done.stderr
    assert "does not report" in done.stdout.splitlines()[-1]
    assert smoke("Error executing method 'x'\n" + steps("", ""), release="v0.1.0").returncode == 1


def test_the_reward_is_the_brightness(release_trees: dict[str, Path]) -> None:
    torch = pytest.importorskip("torch")
    namespace: dict[str, object] = {}
    exec((release_trees["main"] / "tests/special_e2e/bagel_brightness.py").read_text(), namespace)
    score = namespace["compute_score"]
    assert callable(score)
    dark, bright = torch.full((3, 2, 2), 51, dtype=torch.uint8), torch.full((4, 3, 2, 2), 204, dtype=torch.uint8)
    found = [score(data_source="x", solution_image=image, ground_truth="", extra_info={}) for image in (dark, bright)]
    assert found == pytest.approx([0.2, 0.8])
    assert score(solution_image=torch.full((3, 2, 2), 0.25)) == pytest.approx(0.25)


def test_in_bypass_mode_nothing_is_compared_and_its_last_line_says_so(smoke: Run) -> None:
    bypass = "algorithm.rollout_correction.bypass_mode="
    done = smoke(steps("", ""), f"{bypass}True")
    assert done.returncode == 0, done.stderr
    assert "2 steps, log-probs of rollout and training were not compared, reward 0.5100" in done.stdout.splitlines()[-1]
    done = smoke(steps("", ""), f"{bypass}True", f"{bypass}False")
    assert done.returncode == 1
    assert "the trainer reported no rollout_corr/logprob_abs_diff_max" in done.stderr
