"""A walk through a package's life as a newcomer takes it: a terminal for the questions, a browser for the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli
from installed import require

Cli = Callable[..., Any]
pytestmark = [pytest.mark.upstream, pytest.mark.slow]
TESTS = Path(__file__).resolve().parents[1]
PACKAGE = "verl_omni/pipelines/toy_flow_grpo"


def files(root: Path) -> dict[str, bytes]:
    """Every file of a tree, links by where they lead."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = str(path.readlink()).encode()
        elif path.is_file():
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def named(said: str) -> list[str]:
    """The commands that the last lines of an answer name."""
    return re.findall(r"`(omni-scaffold [^`]+)`", "\n".join(line for line in said.splitlines() if "next: " in line))


def test_from_the_first_question_to_the_last_file(
    tmp_path: Path, python_file: Callable[[Path, str], Any], scaffold_cli: Cli
) -> None:
    require("torch")
    standins = python_file(TESTS / "lifecycle" / "checkout_standins.py", "standins_of_the_walk")
    terminals = python_file(TESTS / "cli" / "test_cli_questions.py", "questions_of_the_walk")
    browsers = python_file(TESTS / "verify" / "report_browser.py", "browser_of_the_walk")
    checkout: Path = standins.write_standin(tmp_path / "checkout", "main", git=False)
    before = files(checkout)

    # Where am I, and does it fit?
    found = json.loads(scaffold_cli("doctor", checkout, "--format", "json").out)
    assert {"cache", "git"} <= {one["name"] for one in found["findings"]}
    asked = scaffold_cli("inspect", "bagel", "--show", "scheduler.shift", cwd=checkout).success()
    assert re.search(r"vllm_omni/\S+\.py", asked)

    # Questions, in the checkout itself.
    terminal = terminals.Terminal(checkout, "new")
    terminal.answer("part of its name: ", "bagel\n")
    terminal.answer("name of the integration [bagel]: ", "toy\n")
    terminal.answer("(empty for none) []: ", "\n")
    terminal.answer("write into the checkout", "y\n")
    terminal.answer("FILE:FUNCTION [ocr]: ", "\n")
    for name in ("cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min"):
        terminal.answer(f"guidance {name} [", "\n")
    terminal.answer("lora, full [lora]: ", "\n")
    terminal.answer("LoRA adapter [64]: ", "32\n")
    assert terminal.rest() == 0, terminal.seen
    spec = checkout / PACKAGE / "scaffold.toml"
    assert tomli.loads(spec.read_text())["lora"]["rank"] == 32
    for command in named(terminal.seen):
        words = command.split()
        assert (words[1], words[2]) in {("check", PACKAGE), ("verify", PACKAGE)}
    assert len(named(terminal.seen)) == 2

    # Make it ours: a preset, which the update brings in.
    said = scaffold_cli("preset", "new", "BagelPipeline", "--name", "toy", cwd=checkout).success()
    assert named(said) == ["omni-scaffold new toy --pipeline BagelPipeline --dry-run"]
    preset = checkout / ".omni-scaffold/presets/toy.toml"
    preset.write_text(preset.read_text().replace("# noise_level = 0.7", "noise_level = 0.6"))
    said = scaffold_cli("update", PACKAGE, cwd=checkout).success()
    assert "noise_level 0.7 to 0.6 in " in said
    assert "noise_level=0.6" in (checkout / "examples/flowgrpo_trainer/toy/run_toy_ocr_lora.sh").read_text()
    scaffold_cli("check", PACKAGE, cwd=checkout).success()

    # Seeing: one contract, on the terminal as it ends, and a page that opens clean.
    # The stand-in has nothing to run, so a tree of its own meets the contract kit.
    page, tree = tmp_path / "report.html", tmp_path / "tree"
    scaffold_cli("new", "toy", "--spec", spec, "--patch", "--out", tree).success()
    terminal = terminals.Terminal(tree, "verify", PACKAGE, "--select", "registration", "--report", str(page))
    assert terminal.rest() == 0, terminal.seen
    assert "pass registration\n" in terminal.seen
    assert str(page) in terminal.seen
    executable = browsers.find_chromium()
    if executable is not None:
        with browsers.Browser(executable, tmp_path / "profile") as browser:
            for width in (1280, 390):
                browser.open(page, width=width)
                assert browser.errors == []
                assert browser.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
                assert "registration" in browser.evaluate("document.body.innerText")

    # Another vllm-omni, an agent's skill, and away with it.
    drift = scaffold_cli("drift", PACKAGE, "--to", "0.30.0", cwd=checkout)
    assert drift.code in (0, 1)
    assert "0.30.0" in drift.out
    scaffold_cli("skill", cwd=checkout).success()
    scaffold_cli("remove", PACKAGE, cwd=checkout).success()
    left = files(checkout)
    ours = {".omni-scaffold/presets/toy.toml", ".claude/skills/omni-scaffold/SKILL.md"}
    assert left.keys() - before.keys() == ours
    assert {path: left[path] for path in before} == before
