"""docs/check.md and the hook definition: what they show is what happens."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaffold import __version__

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "check.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line[2:] for block in CONSOLE for line in block.splitlines() if line.startswith("$ omni-scaffold")]


@pytest.fixture
def broken(reference: Path, tmp_path: Path) -> Path:
    """Copy the rendered tree, with the mistake of the page in it."""
    shutil.copytree(reference, tmp_path / reference.name, symlinks=True)
    (model,) = (tmp_path / reference.name).glob("verl_omni/pipelines/*/*_model.py")
    text = model.read_text()
    assert "_supports_gradient_checkpointing = True" in text
    model.write_text(
        text.replace("_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing = False")
    )
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_works(broken: Path, scaffold_cli: Callable[..., Any], command: str) -> None:
    outcome = scaffold_cli(*command.split()[1:], cwd=broken)
    assert outcome.code in (0, 1), outcome.err


@pytest.mark.parametrize("block", [block for block in CONSOLE if len(block.splitlines()) > 4])
def test_output_of_the_page_is_what_is_printed(broken: Path, scaffold_cli: Callable[..., Any], block: str) -> None:
    command, _, expected = block.partition("\n")
    outcome = scaffold_cli(*command.split()[2:], cwd=broken)
    # Lines of the rendered module move with its templates.
    numbers = re.compile(r"\d+")
    margin = re.compile(r"(?m)^ *")
    plain = [margin.sub("", numbers.sub("N", text)) for text in (outcome.out, expected)]
    assert plain[0] == plain[1]


def test_workflow_of_the_page_is_yaml_and_its_commands_exist(broken: Path, scaffold_cli: Callable[..., Any]) -> None:
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "jobs:" in block]
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    commands = [step["run"] for step in steps if step.get("run", "").startswith("omni-scaffold")]
    assert len(commands) == 2
    for command in commands:
        words = command.partition(" >")[0].split()[1:]
        assert scaffold_cli(*words, cwd=broken / "reference_bagel").code == 1


def test_hook_runs_the_command_on_a_checkout(broken: Path, scaffold_cli: Callable[..., Any]) -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == "omni-scaffold-check"
    assert hook["pass_filenames"] is False
    assert f"pip install tools/omni_scaffold-{__version__}-py3-none-any.whl" in PAGE
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if text.startswith("repos:")]
    (repo,) = yaml.safe_load(block)["repos"]
    assert (repo["rev"], repo["hooks"]) == ("main", [{"id": hook["id"]}])
    words = [*hook["entry"].split(), *hook["args"]]
    assert words[0] == "omni-scaffold"
    assert scaffold_cli(*words[1:], cwd=broken / "reference_bagel").code == 1
    package = next((broken / "reference_bagel").glob("verl_omni/pipelines/*/*.py"))
    assert re.search(hook["files"], package.relative_to(broken / "reference_bagel").as_posix())
    assert not re.search(hook["files"], "README.md")


def test_settings_of_the_page_are_read(broken: Path, scaffold_cli: Callable[..., Any]) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    root = broken / "reference_bagel"
    (root / "pyproject.toml").write_text(text)
    known = scaffold_cli("check", root, "--write-baseline", root / ".omni-scaffold-baseline.json")
    assert known.code == 0, known.err
    assert scaffold_cli("check", root).code == 0
