"""``new --algorithm``: what the adapters are registered for, and what the scripts give to the trainer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.algorithms import ALGORITHMS

ORDER = ("mix_grpo", "flow_grpo", "dance_grpo", "flow_dppo", "grpo_guard", "diffusion_nft", "dpo")
ASKED = [word for name in ORDER for word in ("--algorithm", name)]


@pytest.fixture(scope="module")
def tree(rendered: Callable[..., Path]) -> Path:
    return rendered("model", "--pipeline", "FluxPipeline", "--vllm-omni", "0.30.0", *ASKED)


def registered(text: str) -> dict[str, str]:
    """The class of each algorithm."""
    found: dict[str, str] = {}
    for block in re.finditer(r"((?:^@\w+\.register\(.*\)\n)+)class (\w+)", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r'algorithm="(\w+)"', block[1]), block[2])
    return found


def test_every_algorithm_has_adapters_on_one_record(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    package = tree / "verl_omni/pipelines/model_flow_grpo"
    rollout = registered((package / "vllm_omni_rollout_adapter.py").read_text(encoding="utf-8"))
    training = registered((package / "diffusers_training_adapter.py").read_text(encoding="utf-8"))
    assert rollout.keys() == training.keys() == {entry.registered for entry in ALGORITHMS.values()}
    assert rollout["flow_grpo"] == rollout["mix_grpo"] != rollout["dance_grpo"] != rollout["diffusion_nft"]
    assert {name for name, kind in training.items() if kind != training["flow_grpo"]} == {"diffusion_nft", "dpo"}
    # Beside the package stands what it reaches of the runtime.
    names = {path.name for path in (tree / "verl_omni/pipelines/flow_grpo_runtime").glob("*.py")}
    assert {"algorithms.py", "forward_process.py"} <= names
    scaffold_cli("check", package).success()


def chosen(script: Path, **given: str) -> list[str]:
    """What a script gives to the trainer for its algorithm."""
    text = script.read_text(encoding="utf-8")
    part = text[text.index("ALGORITHM=${ALGORITHM:-") :].partition("esac\n")[0] + "esac"
    run = subprocess.run(
        ["bash", "-c", f"{part}\nprintf '%s\\n' \"${{algorithm[@]}}\""], env=given, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("name", ORDER)
def test_a_script_trains_by_the_algorithm_that_it_is_asked_for(tree: Path, name: str) -> None:
    scripts = [*tree.glob("examples/**/run_*.sh"), *tree.glob("tests/special_e2e/run_*.sh")]
    assert len(scripts) >= 2
    for script in scripts:
        found = dict(entry.split("=", 1) for entry in chosen(script, ALGORITHM=name))
        wanted = ALGORITHMS[name]
        assert found.pop("actor_rollout_ref.model.algorithm") == wanted.registered
        assert (found.pop("trainer.use_v1", None) == "False") == (not wanted.v1)
        assert found == dict(wanted.options)
        assert '"${algorithm[@]}"' in script.read_text(encoding="utf-8").rpartition("main_diffusion")[2]


def test_the_first_is_that_of_the_scripts_and_another_is_refused(tree: Path) -> None:
    script = next(tree.glob("tests/special_e2e/run_*.sh"))
    assert "actor_rollout_ref.model.algorithm=mix_grpo" in chosen(script)
    with pytest.raises(AssertionError, match="ALGORITHM is awm, and this package was rendered for mix_grpo, flow"):
        chosen(script, ALGORITHM="awm")


def test_the_choice_stands_in_what_a_person_edits(tree: Path) -> None:
    spec = tomli.loads((tree / "verl_omni/pipelines/model_flow_grpo/scaffold.toml").read_text(encoding="utf-8"))
    assert spec["recipe"]["algorithms"] == list(ORDER)


def test_an_unknown_algorithm_is_refused(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ("new", "model", "--pipeline", "FluxPipeline", "--vllm-omni", "0.30.0", "--out", tmp_path)
    line = scaffold_cli(*command, "--algorithm", "mixgrpo").refusal()
    assert "--algorithm mixgrpo is none that is known (did you mean mix_grpo?)" in line


def test_an_algorithm_of_recorded_calls_needs_some(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    line = scaffold_cli("new", "bagel", "--out", tmp_path, "--algorithm", "diffusion_nft").refusal()
    assert "rests on calls of the denoiser that a rollout records; BagelPipeline has none" in line
    lora = ("--pipeline", "FluxPipeline", "--vllm-omni", "0.30.0", "--lora-rank", "0", "--algorithm", "diffusion_nft")
    assert "it needs LoRA" in scaffold_cli("new", "model", *lora, "--out", tmp_path).refusal()
