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
    scaffold_cli("new", "omnigen2", "--vllm-omni", "0.30.0", "--out", out).success()
    return out


@pytest.fixture
def tree(rendered_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rendered_once, tmp_path / "out", symlinks=True))


def test_it_lies_beside_the_package_as_it_is_here(tree: Path) -> None:
    for path, file in runtime_files().items():
        assert (tree / path).read_text(encoding="utf-8") == file.content
        assert file.content.startswith("# Copyright")


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
