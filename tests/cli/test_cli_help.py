"""Help, completion and near misses of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold import __version__

Cli = Callable[..., Any]
ORDER = "doctor list inspect new remap check env verify export drift update move remove skill preset"


def commands(scaffold_cli: Cli) -> list[str]:
    listed = scaffold_cli("--help").success().partition("Commands:\n")[2]
    return [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def test_commands_stand_in_the_order_of_use_and_are_not_cut(scaffold_child: Cli) -> None:
    text = scaffold_child("--help", COLUMNS="80").success()
    listed = text.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed][: len(ORDER.split())] == ORDER.split()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed), listed


def test_every_help_has_an_example_of_that_command(scaffold_cli: Cli) -> None:
    for command in commands(scaffold_cli):
        text = scaffold_cli(command, "--help").success()
        examples = re.findall(r"^    (omni-scaffold .+)$", text.partition("Example")[2], re.MULTILINE)
        assert examples, command
        assert all(example.split()[1] == command for example in examples)
        for option in re.findall(r"(--[a-z-]+)", " ".join(examples)):
            assert f"  {option}" in text.partition("Options:")[2], (command, option)


def test_version_has_a_short_option(scaffold_cli: Cli) -> None:
    assert scaffold_cli("-V").success() == scaffold_cli("--version").success() == f"omni-scaffold {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["chek"], "No such command 'chek'; did you mean 'check'? See omni-scaffold --help"),
        (
            ["new", "--vllmomni"],
            "No such option: --vllmomni; did you mean --verl-omni or --vllm-omni? See omni-scaffold new",
        ),
        (["inspect", "--formt", "json"], "No such option: --formt; did you mean --format? See omni-scaffold inspect"),
    ],
)
def test_a_near_miss_is_one_plain_sentence(scaffold_cli: Cli, arguments: list[str], line: str) -> None:
    said = scaffold_cli(*arguments).refusal()
    assert said.startswith(line)
    assert "?;" not in said
    assert "(" not in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command(scaffold_child: Cli, shell: str) -> None:
    script = scaffold_child("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").success()
    assert "_OMNI_SCAFFOLD_COMPLETE" in script


def test_completion_knows_commands_and_options(scaffold_child: Cli) -> None:
    asked = {"_OMNI_SCAFFOLD_COMPLETE": "complete_bash"}
    found = scaffold_child(COMP_WORDS="omni-scaffold re", COMP_CWORD="1", **asked).out.split()
    assert found == ["remap", "remove"]
    found = scaffold_child(COMP_WORDS="omni-scaffold check --stat", COMP_CWORD="2", **asked).out.split()
    assert found == ["--statistics"]
    found = scaffold_child(COMP_WORDS="omni-scaffold check --select OSC52", COMP_CWORD="3", **asked).out.split()
    assert "OSC524" in found
    assert all(name.startswith("OSC52") for name in found)


@pytest.mark.upstream
def test_completion_knows_pipelines_and_versions(scaffold_child: Cli) -> None:
    asked = {"_OMNI_SCAFFOLD_COMPLETE": "complete_bash"}
    words = "omni-scaffold inspect --vllm-omni 0.30.0 SenseN"
    assert scaffold_child(COMP_WORDS=words, COMP_CWORD="4", **asked).out.split() == ["SenseNovaU1Pipeline"]
    words = "omni-scaffold inspect --vllm-omni 0.28"
    assert {"0.28.0rc1", "0.28.0"} <= set(scaffold_child(COMP_WORDS=words, COMP_CWORD="3", **asked).out.split())


@pytest.mark.upstream
def test_new_inside_a_checkout_writes_there(
    scaffold_cli: Cli, tmp_path: Path, python_file: Callable[[Path, str], Any]
) -> None:
    module = python_file(Path(__file__).parents[1] / "lifecycle" / "checkout_standins.py", "standins_of_lifecycle")
    root = module.write_standin(tmp_path / "checkout", "main", git=False)
    said = scaffold_cli("new", "toy_flow_grpo", "--pipeline", "BagelPipeline", cwd=root / "verl_omni").success()
    package = root / "verl_omni/pipelines/toy_flow_grpo"
    assert package.is_dir()
    assert not (root / "verl_omni/pipelines/toy_flow_grpo_flow_grpo").exists()
    there = "pipelines/toy_flow_grpo"
    last = f"next: `omni-scaffold check {there}`, then `omni-scaffold verify {there}`"
    assert said.splitlines()[-1] == last
    assert "inside of a checkout" in scaffold_cli("new", "bagel", cwd=tmp_path).refusal()
