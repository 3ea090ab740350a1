"""JSON of the commands that write: stable keys, and what they say is what is on disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.spec.lock import seal

Cli = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
NAME = "toy_flow_grpo"
PACKAGE = f"verl_omni/pipelines/{NAME}"


@pytest.fixture
def spec(reference: Path, tmp_path: Path) -> Path:
    """The reference's spec under another name, with which nothing is inspected."""
    for half in reference.glob("verl_omni/pipelines/*/scaffold.*"):
        text = re.sub("bagel_flow_grpo", NAME, half.read_text()).replace('model = "bagel"', 'model = "toy"')
        (tmp_path / half.name).write_text(seal(text) if half.name.endswith(".lock.toml") else text)
    return tmp_path / "scaffold.toml"


@pytest.fixture
def checkout(tmp_path: Path, python_file: Callable[[Path, str], Any]) -> Path:
    """A stand-in of verl-omni's main."""
    module = python_file(Path(__file__).parents[1] / "lifecycle" / "checkout_standins.py", "standins_of_lifecycle")
    root: Path = module.write_standin(tmp_path / "checkout", "main", git=False)
    return root


def keys_on_the_page(command: str) -> set[str]:
    """The names that docs/json.md lists for a command."""
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{command}` \| (.*) \|$", page, re.MULTILINE)
    assert row is not None
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row[1]))) - {"check"}


def test_new_says_what_it_would_write_and_what_it_wrote(spec: Path, checkout: Path, scaffold_cli: Cli) -> None:
    command = ("new", "toy", "--spec", spec, "--verl-omni", checkout, "--format", "json")
    plan = json.loads(scaffold_cli(*command, "--dry-run").success())
    assert (plan["schema"], plan["written"], plan["root"]) == (1, False, str(checkout))
    assert set(plan) == {"schema", *keys_on_the_page("new")}
    assert not (checkout / PACKAGE).exists()
    done = json.loads(scaffold_cli(*command).success())
    assert done == {**plan, "written": True, "notes": done["notes"]}
    assert done["package"] == {"name": NAME, "path": PACKAGE}
    created = [change["path"] for change in done["changes"] if change["action"] == "create"]
    assert f"{PACKAGE}/scaffold.toml" in created
    assert [path for path in created if not os.path.lexists(checkout / path)] == []
    again = json.loads(scaffold_cli(*command).success())
    assert {change["action"] for change in again["changes"]} == {"same"}


def test_new_names_conflicts(spec: Path, checkout: Path, scaffold_cli: Cli) -> None:
    command = ("new", "toy", "--spec", spec, "--verl-omni", checkout, "--format", "json")
    path = f"{PACKAGE}/__init__.py"
    (checkout / PACKAGE).mkdir(parents=True)
    (checkout / path).write_text("mine = 1\n")
    outcome = scaffold_cli(*command, "--dry-run")
    assert outcome.code == 4
    found = {change["path"] for change in json.loads(outcome.out)["changes"] if change["conflict"]}
    assert found == {path}
    outcome = scaffold_cli(*command)
    assert (outcome.code, outcome.out) == (4, "")


def test_update_and_remove(spec: Path, checkout: Path, scaffold_cli: Cli) -> None:
    scaffold_cli("new", "toy", "--spec", spec, "--verl-omni", checkout).success()
    recorded = checkout / PACKAGE / "scaffold.toml"
    recorded.write_text(recorded.read_text().replace("rank = 64", "rank = 32", 1))
    outcome = scaffold_cli("update", checkout / PACKAGE, "--spec", "--format", "json")
    updated = json.loads(outcome.out)
    assert set(updated) == {"schema", *keys_on_the_page("update")}
    assert updated["from"] == updated["to"]
    assert any(change["action"] == "edit" for change in updated["changes"])
    assert outcome.code == int(any(finding["severity"] == "error" for finding in updated["findings"]))
    (checkout / PACKAGE / "__init__.py").write_text("mine = 1\n")
    outcome = scaffold_cli("remove", checkout / PACKAGE, "--dry-run", "--format", "json")
    assert outcome.code == 4
    assert json.loads(outcome.out)["undecided"] == [f"{PACKAGE}/__init__.py"]
    removed = json.loads(scaffold_cli("remove", checkout / PACKAGE, "--force", "--format", "json").success())
    assert set(removed) == {"schema", *keys_on_the_page("remove")}
    assert (removed["written"], removed["undecided"]) == (True, [])
    assert not (checkout / PACKAGE).exists()


@pytest.mark.parametrize("command", [("new", "bagel", "--patch", "--out", "x"), ("update", "x"), ("remove", "x")])
def test_a_difference_is_no_json(scaffold_cli: Cli, command: tuple[str, ...]) -> None:
    assert "--dry-run has" in scaffold_cli(*command, "--diff", "--format", "json").refusal()


def test_every_command_with_json_is_on_the_page(scaffold_cli: Cli) -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    commands = re.findall(r"^  ([a-z]+) ", scaffold_cli("--help").success().partition("Commands:")[2], re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        if "--format" in scaffold_cli(command, "--help").success():
            assert f"\n| `{command}` | " in page, command
