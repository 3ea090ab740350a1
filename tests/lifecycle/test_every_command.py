"""Every command on a package in a checkout, and on the same package in a project of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaffold.files.resources import runtime_root

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = {"checkout": "verl_omni/pipelines/bagel_flow_grpo", "project": "src/bagel_flow_grpo"}
CLI = Callable[..., Any]


@pytest.fixture(scope="module")
def places(scaffold_cli: CLI, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    shutil.copytree(reference, folder / "checkout", symlinks=True)
    scaffold_cli("move", reference, "--out", folder / "project").success()
    return {name: folder / name for name in FOLDERS}


@pytest.fixture(params=FOLDERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def package(name: str, places: dict[str, Path], tmp_path: Path) -> Path:
    """The package's folder, in a copy that a test may change."""
    return Path(shutil.copytree(places[name], tmp_path / name, symlinks=True)) / FOLDERS[name]


def test_verify(warm: None, places: dict[str, Path], name: str, scaffold_cli: CLI) -> None:
    for given in (places[name], places[name] / FOLDERS[name]):
        assert "1 pass" in scaffold_cli("verify", given, "--select", "registration").success()


def test_remap(
    places: dict[str, Path], name: str, scaffold_cli: CLI, released_bagel: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = released_bagel(tmp_path / "bagel")
    package = places[name] / FOLDERS[name]
    data = json.loads(scaffold_cli("remap", package, "--checkpoint", checkpoint, "--format", "json").success())
    assert (data["counts"]["unfilled"], data["counts"]["unexplained"]) == (0, 0)
    assert data["counts"]["mapped"] == 796


def test_update_finds_nothing_then_an_edit_of_a_value(package: Path, scaffold_cli: CLI) -> None:
    assert "nothing to do" in scaffold_cli("update", package, "--spec").success()
    spec = package / "scaffold.toml"
    spec.write_text(re.sub(r"(?m)^group_size = .*", "group_size = 8", spec.read_text()))
    assert "group_size 16 to 8" in scaffold_cli("update", package, "--spec").success()
    assert "nothing to do" in scaffold_cli("update", package, "--spec").success()


@pytest.mark.upstream
def test_drift(places: dict[str, Path], name: str, scaffold_cli: CLI) -> None:
    package = places[name] / FOLDERS[name]
    told = json.loads(scaffold_cli("drift", package, "--to", "0.27.0rc1", "--format", "json").success())
    assert told["facts"] == []


def test_doctor(places: dict[str, Path], name: str, scaffold_cli: CLI) -> None:
    outcome = scaffold_cli("doctor", "--package", places[name] / FOLDERS[name], "--format", "json")
    (package, *scripts) = json.loads(outcome.out)["findings"]
    assert (outcome.code, package["name"], package["state"]) == (0, "package", "absent")
    # In a checkout verl-omni imports the package itself: scripts name no library.
    assert [script["state"] for script in scripts] == (["ok", "ok"] if name == "project" else [])


def test_remove(package: Path, name: str, scaffold_cli: CLI) -> None:
    own = package / "mine.py"
    own.write_text("MINE = 1\n")
    scaffold_cli("remove", package, "--force").success()
    assert [path.name for path in package.rglob("*") if path.is_file()] == ["mine.py"]


def test_the_pre_commit_hook(package: Path, name: str, scaffold_cli: CLI) -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    words, root = [*hook["entry"].split(), *hook["args"]][1:], package.parents[FOLDERS[name].count("/")]
    assert scaffold_cli(*words, cwd=root).code == 0
    (script,) = root.rglob("run_bagel_ocr_lora.sh")
    script.write_text(script.read_text().replace("lora_rank=64", "lora_rnak=64"))
    found = scaffold_cli(*words, cwd=root)
    assert (found.code, "OSC523" in found.out) == (1, True)
    changed = (script, package / "common.py")
    assert all(re.search(hook["files"], path.relative_to(root).as_posix()) for path in changed)


def test_the_weekly_job(package: Path, name: str, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/lifecycle.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(# \.github/workflows/vllm-omni-drift\.yml\n.*?)```", page, re.DOTALL)
    assert block is not None
    tool = tmp_path / "bin/omni-scaffold"
    tool.parent.mkdir()
    tool.write_text('#!/usr/bin/env bash\necho "asked: $*"\n')
    tool.chmod(0o755)
    summary = tmp_path / "summary.md"
    done = subprocess.run(
        ["bash", "-e", "-c", yaml.safe_load(block[1])["jobs"]["drift"]["steps"][-1]["run"]],
        cwd=package.parents[FOLDERS[name].count("/")],
        env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"asked: drift {FOLDERS[name]} --to newest" in summary.read_text()


def test_an_edited_runtime_that_a_project_uses_is_seen(
    places: dict[str, Path], scaffold_child: CLI, tmp_path: Path
) -> None:
    installed = tmp_path / "site" / runtime_root().name
    shutil.copytree(runtime_root(), installed, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join((str(installed.parent), str(REPOSITORY)))
    assert scaffold_child("check", places["project"], path=path).code == 0
    file, start = installed / "stepped_training.py", installed / "__init__.py"
    file.write_text(file.read_text() + "\nSTEPS = 1\n")
    told = scaffold_child("check", places["project"], path=path)
    assert "OSC540 stepped_training.py of flow_grpo_runtime is not as it was released" in told.out
    start.write_text(start.read_text().replace('LOCAL = ""', 'LOCAL = "lab.1"'))
    assert scaffold_child("check", places["project"], path=path).code == 0
