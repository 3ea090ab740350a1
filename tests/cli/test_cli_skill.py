"""The skill file: where agents of the checkout look, and of commands and options that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
TEXT = (Path(__file__).parents[2] / "scaffold/skill/SKILL.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path, python_file: Callable[[Path, str], Any]) -> Path:
    """A small folder of the shape of verl-omni's main."""
    module = python_file(Path(__file__).parents[1] / "target" / "test_target.py", "stand_in_checkout")
    root: Path = module.standin(tmp_path / "verl-omni", "main")
    return root


def test_it_stands_beside_the_checkouts_own_skills(checkout: Path, scaffold_cli: Cli) -> None:
    (checkout / ".agents/skills").mkdir(parents=True)
    (checkout / ".claude").mkdir()
    (checkout / ".claude/skills").symlink_to("../.agents/skills")
    answer = json.loads(scaffold_cli("skill", "--format", "json", cwd=checkout / "verl_omni").success())
    assert (answer["schema"], answer["written"]) == (1, True)
    assert [change["path"] for change in answer["changes"]] == [".agents/skills/omni-scaffold/SKILL.md"]
    assert (checkout / ".claude/skills/omni-scaffold/SKILL.md").read_text() == TEXT
    again = json.loads(scaffold_cli("skill", "--verl-omni", checkout, "--format", "json").success())
    assert again["changes"][0]["action"] == "same"


def test_without_skills_it_makes_the_folder(checkout: Path, scaffold_cli: Cli) -> None:
    path = checkout / ".claude/skills/omni-scaffold/SKILL.md"
    scaffold_cli("skill", "--verl-omni", checkout, "--dry-run").success()
    assert not path.exists()
    assert "+# omni-scaffold\n" in scaffold_cli("skill", "--verl-omni", checkout, "--diff").success()
    assert not path.exists()
    scaffold_cli("skill", "--verl-omni", checkout).success()
    path.write_text("mine\n")
    outcome = scaffold_cli("skill", "--verl-omni", checkout)
    assert outcome.code == 4
    assert path.read_text() == "mine\n"
    scaffold_cli("skill", "--verl-omni", checkout, "--force").success()
    assert path.read_text() == TEXT


def test_outside_of_a_checkout_it_asks_where(tmp_path: Path, scaffold_cli: Cli) -> None:
    assert "say where the skill goes" in scaffold_cli("skill", cwd=tmp_path).refusal()


def test_every_command_and_option_in_it_exists(scaffold_cli: Cli) -> None:
    lines = re.findall(r"`omni-scaffold ([a-z]+)([^`]*)`", TEXT)
    assert len(lines) > 10
    for command, rest in lines:
        text = scaffold_cli(command, "--help").success()
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in text, (command, option)
    for option in ("--force", "--keep-edited", "--allow-version-mismatch"):
        assert option in TEXT
