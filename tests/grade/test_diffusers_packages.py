"""Packages of pipelines whose denoiser diffusers loads: names, and no port, key map or formula."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

VERSION = "0.30.0"
GUIDED = {"FluxPipeline": {"true_cfg_scale": 1.0}, "StableDiffusion3Pipeline": {"guidance_scale": 7.0}}


def written(scaffold_cli: Callable[..., Any], out: Path, pipeline: str, *more: str) -> tuple[Path, str]:
    """Folder of the rendered package, and what was said."""
    command = ("new", "model", "--pipeline", pipeline, "--vllm-omni", VERSION, "--out", out, *more)
    said = scaffold_cli(*command).success()
    return next(path.parent for path in out.rglob("common.py") if path.parent.name == "model_flow_grpo"), said


@pytest.mark.parametrize("pipeline", list(GUIDED))
def test_a_package_is_a_list_of_names(scaffold_cli: Callable[..., Any], tmp_path: Path, pipeline: str) -> None:
    package, said = written(scaffold_cli, tmp_path, pipeline)
    assert "no denoiser is ported, training has diffusers' own class" in said
    files = {path.name for path in package.glob("*.py")}
    adapters = {"diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py"}
    assert {"__init__.py", "common.py", *adapters} <= files
    assert not any(name.endswith(("_denoiser.py", "_model.py", "_schedule.py")) for name in files)
    names = {
        node.name if isinstance(node, ast.FunctionDef) else target.id
        for node in ast.parse((package / "common.py").read_text(encoding="utf-8")).body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(node, ast.FunctionDef) or isinstance(target, ast.Name)
    }
    assert names == {"CFG_DEFAULTS", "CALLS", "resolve_guidance"}
    spec = tomli.loads((package / "scaffold.lock.toml").read_text(encoding="utf-8"))
    assert spec["values"]["port"]["form"] == "diffusers"
    scaffold_cli("check", package).success()
    # diffusers refuses to trust code where a checkpoint brings none.
    scripts = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("run_*.sh")]
    assert scripts
    assert not any("model.trust_remote_code" in script for script in scripts)


def test_an_argument_of_the_engine_alone_is_declared(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    package, _ = written(scaffold_cli, tmp_path, "QwenImagePipeline")
    assert 'left_out=("txt_seq_lens",)' in (package / "common.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("pipeline", ["WanPipeline", "WanImageToVideoPipeline"])
def test_a_preset_says_which_name_of_a_scale_is_the_scale(
    scaffold_cli: Callable[..., Any], tmp_path: Path, pipeline: str
) -> None:
    """The pipeline reads that of a second expert first, which a checkpoint with one never uses."""
    package, _ = written(scaffold_cli, tmp_path, pipeline)
    scales = {"WanPipeline": '{"guidance_scale_2": 4.0}', "WanImageToVideoPipeline": '{"guidance_scale": 5.0}'}
    assert f"CFG_DEFAULTS: dict[str, Any] = {scales[pipeline]}" in (package / "common.py").read_text(encoding="utf-8")


def test_an_argument_that_diffusers_names_otherwise(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    package, _ = written(scaffold_cli, tmp_path, "WanVACEPipeline")
    common = (package / "common.py").read_text(encoding="utf-8")
    assert 'renamed={"vace_context": "control_hidden_states"}' in common
    assert 'fixed={"vace_context_scale": 1.0}' in common


def test_a_batch_that_the_engine_lets_see_itself_is_called_row_by_row(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    package, _ = written(scaffold_cli, tmp_path, "ZImagePipeline")
    assert "source=DiffusersSource(alone=True)" in (package / "vllm_omni_rollout_adapter.py").read_text(
        encoding="utf-8"
    )


def test_an_engine_that_knows_an_embedding_by_its_place_forgets_it(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    package, _ = written(scaffold_cli, tmp_path, "HeliosPipeline")
    adapter = (package / "vllm_omni_rollout_adapter.py").read_text(encoding="utf-8")
    assert 'source=DiffusersSource(clears="clear_cross_attention_cache")' in adapter


@pytest.mark.parametrize("pipeline", ["QwenImageEditPipeline", "QwenImageEditPlusPipeline"])
def test_an_edit_pipeline_lacks_nothing(scaffold_cli: Callable[..., Any], tmp_path: Path, pipeline: str) -> None:
    package, _ = written(scaffold_cli, tmp_path, pipeline)
    spec = tomli.loads((package / "scaffold.lock.toml").read_text(encoding="utf-8"))
    assert spec["values"]["media"]["lacks"] == []
    assert spec["values"]["grade"]["value"] == "complete"
    media = spec["values"]["media"]
    assert (media["required"], media["sends"]) == (["image"], ["image"])
    assert "text_only" not in (package / "vllm_omni_rollout_adapter.py").read_text(encoding="utf-8")


def test_a_loop_that_was_not_found_is_refused_with_its_place(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ("new", "model", "--pipeline", "LTX2Pipeline", "--vllm-omni", VERSION, "--out", tmp_path)
    line = scaffold_cli(*command).refusal(3)
    assert "LTX2Pipeline of vllm-omni 0.30.0 is not supported here: " in line
    assert "joint streams: one turn steps video and audio" in line
    assert re.search(r"\(vllm_omni/\S+\.py:\d+\)$", line), line


def test_edits_need_no_task(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ("new", "model", "--pipeline", "QwenImageEditPipeline", "--vllm-omni", VERSION, "--task", "edit")
    assert "takes images without it" in scaffold_cli(*command, "--out", tmp_path).refusal(3)
