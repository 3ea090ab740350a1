"""A partial package on the command line: printed grade, saved grade, `check`, its own tests."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.spec import read_spec

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("partial command")]  # one worker renders it


@pytest.fixture(scope="module")
def tree(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partial")
    # Without the settings of the packaged preset nothing says which of its denoisers the pipeline builds.
    plain, out = folder / "plain.toml", folder / "tree"
    plain.write_text('pipelines = ["LongCatVideoAvatarPipeline"]\n', encoding="utf-8")
    arguments = (
        "long_cat",
        "--pipeline",
        "LongCatVideoAvatarPipeline",
        "--vllm-omni",
        "0.30.0",
        "--patch",
        "--out",
        out,
    )
    printed = scaffold_cli("new", *arguments, "--preset", plain).success()
    assert "grade      partial" in printed
    assert "still to write" in printed
    assert "long_cat_model.py: how the denoiser is built from the checkpoint's configuration" in printed
    return out


def test_what_verl_omni_alone_can_carry_is_printed_and_nothing_is_left_to_write(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = (
        "new",
        "au_k",
        "--pipeline",
        "AuKPipeline",
        "--vllm-omni",
        "0.30.0",
        "--patch",
        "--out",
        tmp_path / "out",
    )
    answer = json.loads(scaffold_cli(*arguments, "--dry-run", "--format", "json").success())
    assert (answer["grade"], answer["left"]) == ("unproven", [])
    assert [need["key"] for need in answer["needs"]] == ["stages", "output"]
    printed = scaffold_cli(*arguments).success()
    assert "grade      unproven" in printed
    assert "still to write" not in printed
    assert "needs of verl-omni (2):" in printed
    for need in answer["needs"]:
        assert f"  {need['at']}: {need['what']}" in printed
    assert "once VeRL-Omni carries that: " in printed
    assert "to train: " not in printed


def toml(tree: Path) -> dict[str, object]:
    return dict(read_spec(tree / "verl_omni/pipelines/long_cat_flow_grpo/scaffold.toml").spec.sections)


def test_grade_is_saved(tree: Path) -> None:
    grade = toml(tree)["grade"]
    assert isinstance(grade, dict)
    assert grade["value"] == "partial"
    keys = {entry["key"] for entry in grade["missing"]}
    assert {"loading", "key_map"} <= keys
    assert not {"schedule", "guidance", "recording", "inputs", "checkpointing", "weight_sync"} & keys
    readme = (tree / "examples/flowgrpo_trainer/long_cat/README.md").read_text(encoding="utf-8")
    for entry in grade["missing"]:
        assert f"`{entry['at']}`" in readme


def test_check_reports_what_is_missing(scaffold_cli: Callable[..., Any], tree: Path) -> None:
    done = scaffold_cli("check", tree, "--format", "json")
    assert done.code == 1, done.err
    findings = [finding for finding in json.loads(done.out)["findings"] if finding["rule"] == "OSC140"]
    grade = toml(tree)["grade"]
    assert isinstance(grade, dict)
    raised = {entry["message"] for entry in grade["missing"]} - {
        entry["message"] for entry in grade["missing"] if entry["key"] in ("assumption", "checkpointing")
    }
    assert len(findings) == len(raised)
    assert {finding["severity"] for finding in findings} == {"warning"}


def test_rendering_the_saved_spec_gives_the_same_files(
    scaffold_cli: Callable[..., Any], tree: Path, tmp_path: Path
) -> None:
    spec = tree / "verl_omni/pipelines/long_cat_flow_grpo/scaffold.toml"
    scaffold_cli("new", "long_cat", "--spec", spec, "--patch", "--out", tmp_path / "again").success()
    for path in sorted(tree.rglob("*.py")):
        assert (tmp_path / "again" / path.relative_to(tree)).read_text(encoding="utf-8") == path.read_text(
            encoding="utf-8"
        )


def test_a_spec_that_says_something_else_is_refused(
    scaffold_cli: Callable[..., Any], tree: Path, tmp_path: Path
) -> None:
    package = tree / "verl_omni/pipelines/long_cat_flow_grpo"
    shutil.copy(package / "scaffold.lock.toml", tmp_path)
    edited = Path(shutil.copy(package / "scaffold.toml", tmp_path / "edited.toml"))
    edited.write_text(edited.read_text(encoding="utf-8") + '\n[grade]\nvalue = "done"\n', encoding="utf-8")
    refused = scaffold_cli("new", "long_cat", "--spec", edited, "--patch", "--out", tmp_path / "again").refusal()
    assert "grade.value is 'done'; it must be one of complete, unproven, partial" in refused


def test_its_own_tests_pass_on_the_kit(
    tree: Path, kit_environment: Callable[..., Any], warm_python: Callable[..., Any]
) -> None:
    """The kit stands in for verl-omni and for the pipeline that the rollout adapter inherits from."""
    done = warm_python(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/pipelines"], cwd=tree, env=kit_environment(tree)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"\b(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 12, done.stdout
    assert "skipped" not in done.stdout
