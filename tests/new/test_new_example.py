"""The example answers what a lab asks before it rents a machine, and its scripts take the number of GPUs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scaffold.render import render
from scaffold.spec import IntegrationSpec

EXAMPLE = "examples/flowgrpo_trainer/bagel"
SCRIPT = f"{EXAMPLE}/run_bagel_ocr_lora.sh"
SMOKE = "tests/special_e2e/run_flowgrpo_bagel.sh"


def options(text: str) -> set[str]:
    """Names of the options of the arrays that both scripts hand on."""
    arrays = re.findall(r"^(?:data|model|actor|rollout)=\((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert len(arrays) == 4
    return set(re.findall(r"^    (\+?[\w.]+)=", "".join(arrays), re.MULTILINE))


def test_the_readme_answers(reference: Path) -> None:
    text = (reference / EXAMPLE / "README.md").read_text(encoding="utf-8")
    answers = dict(re.findall(r"^\| ([a-zA-Z ]+) \| (.+) \|$", text, re.MULTILINE))
    assert "divides the 256 images" in answers["GPUs"]
    assert "36.6 GiB" in answers["memory of a GPU"]
    assert "gradient checkpointing" in answers["memory of a GPU"]
    assert "a whole step of 16 images" in answers["time of a step"]
    assert "27.2 GiB" in answers["disk"]
    assert "hf download Qwen/Qwen3-VL-8B-Instruct" in answers["reward model"]
    assert "WANDB_API_KEY" in answers["wandb"]
    works = text.partition("## Does it work?")[2]
    for metric in (
        "`rollout_corr/logprob_abs_diff_max` | up to 1e-3 in bf16, 4e-3 in the first steps of a folded adapter",
        "`critic/rewards/mean` | a finite number that moves",
    ):
        assert metric in works
    assert "omni-scaffold verify verl_omni/pipelines/bagel_flow_grpo --level rollout" in works
    for path in re.findall(r"(?:pytest|bash) (\S+\.(?:py|sh))", works):
        assert (reference / path).is_file(), path


def test_what_nobody_measured_is_said(reference_spec: IntegrationSpec) -> None:
    docs = {key: value for key, value in reference_spec.sections["docs"].items() if key == "last_updated"}
    checkpoint = {**reference_spec.sections["checkpoint"], "bytes": None}
    sections = {**reference_spec.sections, "docs": docs, "checkpoint": checkpoint}
    text = render(replace(reference_spec, sections=sections))[f"{EXAMPLE}/README.md"].content
    assert "| memory of a GPU | not measured. " in text
    assert "| time of a step | not measured |" in text
    assert "| disk | the checkpoint; its size is not known here;" in text


def test_both_scripts_have_one_list_of_options(reference: Path) -> None:
    training, smoke = (options((reference / path).read_text()) for path in (SCRIPT, SMOKE))
    assert training - smoke == {"actor_rollout_ref.actor.optim.weight_decay"}
    assert smoke - training == {"actor_rollout_ref.rollout.enforce_eager"}
    assert len(training & smoke) > 40


@pytest.mark.parametrize(("given", "gpus", "workers"), [(None, 4, 1), ("8", 8, 2), ("2", 2, 1), ("1", 1, 1)])
def test_num_gpus_comes_from_the_environment(
    reference: Path, tmp_path: Path, given: str | None, gpus: int, workers: int
) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(f'#!/usr/bin/env bash\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "NUM_GPUS"}
    environment |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment |= {} if given is None else {"NUM_GPUS": given}
    command = ["bash", str(reference / SCRIPT), "trainer.total_training_steps=1"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    words = (tmp_path / "words").read_text().splitlines()
    assert f"trainer.n_gpus_per_node={gpus}" in words
    assert f"actor_rollout_ref.rollout.agent.num_workers={gpus}" in words
    assert f"reward.num_workers={workers}" in words
    assert words[-1] == "trainer.total_training_steps=1"
