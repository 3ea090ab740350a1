"""`move`: a package leaves a tree for a checkout and becomes a project, with what a person changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"


@pytest.fixture
def tree(reference: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))


def test_edits_and_own_files_come_along(tree: Path, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    common = tree / PACKAGE / "common.py"
    common.write_text(common.read_text().replace('"cfg_text_scale": 4.0', '"cfg_text_scale": 5.0'))
    helper = "from verl_omni.pipelines.bagel_flow_grpo.common import CFG_DEFAULTS\n"
    (tree / PACKAGE / "helper.py").write_text(helper)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    out = tmp_path / "project"
    told = json.loads(scaffold_cli("move", tree, "--out", out, "--format", "json").success())
    assert told["merged"] == ["src/bagel_flow_grpo/common.py"]
    text = (out / "src/bagel_flow_grpo/common.py").read_text()
    assert '"cfg_text_scale": 5.0' in text
    assert "from flow_grpo_runtime.levels import" in text
    assert (out / "src/bagel_flow_grpo/helper.py").read_text() == helper.replace("verl_omni.pipelines.", "")
    assert not (out / "src/flow_grpo_runtime").exists()
    assert "external_lib=bagel_flow_grpo" in (out / "scripts/run_bagel_ocr_lora.sh").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert "1 package" in scaffold_cli("check", out).success()
    scaffold_cli("update", out, "--spec").success()


def test_an_edit_where_the_project_differs_is_left_to_the_person(
    tree: Path, scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    script = tree / "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh"
    line = "    reward.custom_reward_function.path=verl_omni/utils/reward_score/genrm_ocr.py\n"
    script.write_text(script.read_text().replace(line, line.replace("genrm_ocr", "mine")))
    outcome = scaffold_cli("move", tree, "--out", tmp_path / "project")
    assert outcome.code == 4
    assert "conflict markers in scripts/run_bagel_ocr_lora.sh" in outcome.err
    assert "<<<<<<< edited here" in (tmp_path / "project/scripts/run_bagel_ocr_lora.sh").read_text()


def test_a_project_stays_where_it_is(tree: Path, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    scaffold_cli("move", tree, "--out", tmp_path / "project").success()
    said = scaffold_cli("move", tmp_path / "project", "--out", tmp_path / "other").refusal()
    assert "is a project of its own already" in said


def test_a_dry_run_writes_nothing(tree: Path, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    assert "leave out --dry-run" in scaffold_cli("move", tree, "--out", tmp_path / "p", "--dry-run").success()
    assert not (tmp_path / "p").exists()
