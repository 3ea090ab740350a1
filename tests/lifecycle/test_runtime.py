"""The runtime that packages share: written once, carried along, and taken away with the last of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.render.runtime import FOLDER, runtime_files

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("ported packages")]
PACKAGE = "verl_omni/pipelines/omnigen2_flow_grpo"


@pytest.fixture(scope="module")
def rendered_once(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shared") / "out"
    scaffold_cli("new", "omnigen2", "--vllm-omni", "0.30.0", "--patch", "--out", out).success()
    return out


@pytest.fixture
def tree(rendered_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rendered_once, tmp_path / "out", symlinks=True))


def test_what_the_package_reaches_lies_beside_it_as_it_is_here(tree: Path) -> None:
    every = runtime_files()
    there = {path.relative_to(tree).as_posix() for path in (tree / FOLDER).glob("*.py")}
    assert there < every.keys()
    for path in there:
        assert (tree / path).read_text(encoding="utf-8") == every[path].content
        assert every[path].content.startswith("# Copyright")
    texts = [path.read_text() for path in (tree / "verl_omni").rglob("*.py")]
    imported = {name for text in texts for name in re.findall(r"(?:flow_grpo_runtime|from )\.(\w+) import", text)}
    own = {path.stem for path in (tree / PACKAGE).glob("*.py")}
    assert {path.rpartition("/")[2] for path in there} >= {f"{name}.py" for name in imported - own}
    assert not there & {f"{FOLDER}/{name}.py" for name in ("two_streams", "composed_rollout", "stage_inputs")}


def test_a_module_that_another_package_reaches_stays(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    checkout_of_two = tree
    scaffold_cli("new", "bagel", "--patch", "--out", checkout_of_two / "bagel").success()
    for folder in ("bagel_flow_grpo", "flow_grpo_runtime"):
        place = checkout_of_two / "verl_omni/pipelines" / folder
        shutil.copytree(checkout_of_two / "bagel/verl_omni/pipelines" / folder, place, dirs_exist_ok=True)
    shutil.rmtree(checkout_of_two / "bagel")
    scaffold_cli("remove", tree / PACKAGE).success()
    left = {path.name for path in (tree / FOLDER).glob("*.py")}
    assert {"levels.py", "two_streams.py"} <= left
    assert "prompts.py" not in left


def test_it_goes_with_the_last_package_that_uses_it(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    twin = shutil.copytree(tree / PACKAGE, tree / "verl_omni/pipelines/twin_flow_grpo")
    scaffold_cli("remove", tree / PACKAGE).success()
    assert not (tree / PACKAGE).exists()
    assert (tree / FOLDER / "calls.py").is_file()
    shutil.move(twin, tree / PACKAGE)
    scaffold_cli("remove", tree / PACKAGE, "--keep-edited")
    assert not (tree / FOLDER).exists()


def test_an_older_tool_leaves_a_newer_one_alone(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    start = tree / FOLDER / "__init__.py"
    start.write_text(re.sub(r"\nVERSION = \d+", "\nVERSION = 99", start.read_text()))
    assert "version 99" in scaffold_cli("update", tree).refusal(2)
    assert "VERSION = 99" in start.read_text()


def test_what_a_person_changed_in_it_stays(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    file = tree / FOLDER / "levels.py"
    file.write_text(file.read_text() + "\nMINE = 1\n")
    scaffold_cli("update", tree, "--spec").success()
    assert "MINE = 1" in file.read_text()


def test_a_check_of_the_tree_is_one_of_its_packages(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert "1 package" in scaffold_cli("check", tree).success()


def test_an_edited_file_is_named_by_check_and_update(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    file = tree / FOLDER / "stepped_training.py"
    file.write_text(file.read_text() + "\nos_system = 1\n")
    outcome = scaffold_cli("check", tree)
    assert "OSC540 stepped_training.py of flow_grpo_runtime is not as it was released" in outcome.out
    assert f"{FOLDER}/stepped_training.py was edited: kept as it is" in scaffold_cli("update", tree, "--spec").success()


def test_a_local_version_stays_on_purpose(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    file, start = tree / FOLDER / "stepped_training.py", tree / FOLDER / "__init__.py"
    file.write_text(file.read_text() + "\nos_system = 1\n")
    start.write_text(start.read_text().replace('LOCAL = ""', 'LOCAL = "lab.1"'))
    assert "1 package" in scaffold_cli("check", tree).success()
    assert "is the local version lab.1" in scaffold_cli("update", tree, "--spec").success()
    assert "os_system" in file.read_text()
