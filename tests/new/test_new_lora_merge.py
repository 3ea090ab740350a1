"""Releases that merge LoRA themselves and ask for a declaration of media: the recipe chooses, adapters declare."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.new.package import render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.spec.ranges import require_ranges
from scaffold.target import profile_by_name
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
SCRIPTS = ("examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh", "tests/special_e2e/run_flowgrpo_bagel.sh")
README = "examples/flowgrpo_trainer/bagel/README.md"
KEY = "actor_rollout_ref.model.lora.merge"
CLASSES = "class MediaSpec: ...\n\n\nclass DiffusionIOSpec: ...\n"


@pytest.fixture
def newest(release_trees: dict[str, Path], tmp_path: Path) -> Path:
    """Return a tree for the release that merges."""
    return shutil.copytree(release_trees["v0.3.0"], tmp_path / "tree")


def edited(tree: Path, old: str, new: str, path: str = f"{PACKAGE}/scaffold.toml") -> None:
    text = (tree / path).read_text(encoding="utf-8")
    assert old in text
    (tree / path).write_text(text.replace(old, new, 1), encoding="utf-8")


def test_either_way_is_taken_by_both_scripts_and_explained(newest: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert all(f"    {KEY}=False\n" in (newest / script).read_text() for script in SCRIPTS)
    assert f"`{KEY}=False`: the two small matrices" in (newest / README).read_text()
    assert "folds each update" in (newest / README).read_text()
    edited(newest, "merge = false", "merge = true")
    scaffold_cli("update", newest / PACKAGE, "--spec").success()
    assert all(f"    {KEY}=True\n" in (newest / script).read_text() for script in SCRIPTS)
    readme = (newest / README).read_text()
    assert f"`{KEY}=True`: the trainer merges" in readme
    assert "folds each update" not in readme
    scaffold_cli("check", newest / PACKAGE).success()


def test_a_release_without_it_refuses_in_one_line(
    default_tree: Path, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    tree = shutil.copytree(default_tree, tmp_path / "tree")
    assert all(KEY not in (tree / script).read_text() for script in (*SCRIPTS, README))
    edited(tree, "[lora]\n", "[lora]\nmerge = true\n")
    said = scaffold_cli("update", tree / PACKAGE, "--spec").refusal()
    assert f"lora.merge is True; it must be false: verl-omni main has no {KEY}" in said


def test_media_are_declared_where_the_checkout_asks(newest: Path, scaffold_cli: Callable[..., Any]) -> None:
    (newest / "verl_omni/pipelines/rollout_media.py").write_text(CLASSES)
    scaffold_cli("check", newest / PACKAGE).success()
    edited(newest, "    diffusion_io_spec =", "    other_spec =", f"{PACKAGE}/vllm_omni_rollout_adapter.py")
    assert "OSC326" in scaffold_cli("check", newest / PACKAGE).out


def test_a_ported_package_declares_what_it_makes(rendered: Callable[..., Path]) -> None:
    tree = rendered("wan_s2v", "--pipeline", "WanS2VPipeline", "--profile", "v0.3.0", "--vllm-omni", "0.30.0")
    adapter = (tree / "verl_omni/pipelines/wan_s2v_flow_grpo/vllm_omni_rollout_adapter.py").read_text()
    assert '\n    diffusion_io_spec = DiffusionIOSpec(primary=MediaSpec("video"))\n' in adapter
    assert "from verl_omni.pipelines.rollout_media import DiffusionIOSpec, MediaSpec\n" in adapter


def test_where_no_hook_is_left_the_trainer_merges() -> None:
    newest = replace(profile_by_name("v0.3.0"), lora_hook=False, worker_extension=None)
    for key, name, version in (
        ("BagelPipeline", "bagel", "0.27.0rc1"),
        ("OmniGen2Pipeline", "omni_gen2", "0.30.0"),
    ):
        source = locate(version)
        request = SpecRequest(inspect_pipeline(source, key), derive_names(name), newest)
        graded = specify(request, source)
        assert (graded.spec.value("lora.sync"), graded.spec.value("lora.merge")) == ("merge", True)
        files, spec = render_package(graded.spec, [], port=graded.port)
        package = f"verl_omni/pipelines/{spec.value('names.package')}"
        scripts = [str(file.content) for path, file in files.items() if path.endswith(".sh")]
        assert len(scripts) == 2
        assert all(f"    {KEY}=True\n" in text for text in scripts)
        assert all("nothing else brings it into this rollout" in text for text in scripts)
        training = str(files[f"{package}/diffusers_training_adapter.py"].content)
        assert "    lora_merged = True\n" in training
        assert f"let the trainer merge it ({KEY}=True)" in " ".join(training.replace('"', "").split())
        assert "map_lora_update" not in str(files[f"{package}/vllm_omni_rollout_adapter.py"].content)
        values = {**spec.sections, "lora": {**spec.sections["lora"], "merge": False}}
        with pytest.raises(ScaffoldError) as refused:
            require_ranges(replace(spec, sections=values), "scaffold.toml")
        assert "lora.merge is False; it must be true" in refused.value.line
