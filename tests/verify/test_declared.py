"""``verify.toml`` of a hand-written package: asked for, written as far as known, and checked against what happens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.declared import read_declared
from scaffold.verify.package import upstream_bases

FOLDER = Path(__file__).parent / "hand_written"


@pytest.fixture
def quilt(tmp_path: Path) -> Path:
    """Return the folder of a package that takes embeddings."""
    shutil.copytree(FOLDER / "embeddings", tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    return next((tmp_path / "tree" / "verl_omni" / "pipelines").iterdir())


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("patch = 2\n", "", "verify.toml: [verify] patch is missing: side of the square of latents"),
        ("[4, 4, 6]", '"?"', "verify.toml: [verify] latents is still '?': shape of its latents"),
        ('time = "1 - sigma"', 'time = "seconds"', "verify.toml: [verify] time must be: timestep of a noise level"),
        ("scale = 3.5", 'scale = 3.5\nshape = "?"', "verify.toml: [verify] shape is not a key of it"),
        ("caption_dim = 20", 'caption_dim = "?"', "verify.toml: [verify] files is still '?'"),
    ],
)
def test_the_first_line_that_is_missing_is_named_with_its_file(
    before: str, after: str, told: str, quilt: Path, edit: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    edit(quilt / "verify.toml", before, after)
    assert told in scaffold_cli("verify", quilt, "--select", "registration").refusal()


def test_pixels_of_a_token_follow_from_the_table(quilt: Path, edit: Callable[..., None]) -> None:
    root = quilt.parents[2]
    assert read_declared(quilt, root).pixels_per_token == 16
    edit(quilt / "verify.toml", "latents = [4, 4, 6]", "latents = [6, 16]")
    assert read_declared(quilt, root).pixels_per_token == 16


def test_init_writes_what_the_text_says_with_its_place(quilt: Path, scaffold_cli: Callable[..., Any]) -> None:
    refused = scaffold_cli("verify", quilt, "--init").refusal()
    assert "verify.toml is there already" in refused
    (quilt / "verify.toml").unlink()
    done = scaffold_cli("verify", quilt, "--init")
    text = (quilt / "verify.toml").read_text(encoding="utf-8")
    assert done.code == 0
    assert 'weights = "quilt.safetensors"  # quilt.py:' in text
    assert 'depth = "?"  # 20 at quilt.py:' in text
    assert 'prompt_embeds = ["prompt", "?"]  # read at quilt.py:' in text
    assert 'time = "?"' in text, "the package sets timesteps of its own"
    assert "[verify] image is still '?'" in scaffold_cli("verify", quilt, "--select", "forward").refusal()


def test_init_names_files_with_the_folders_that_they_lie_in(
    quilt: Path, edit: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    (quilt / "verify.toml").unlink()
    edit(
        quilt / "quilt.py", '_home(model_path), "quilt.safetensors"', '_home(model_path), "parts", "quilt.safetensors"'
    )
    edit(
        quilt / "quilt.py", 'os.path.join(_home(model_path), "config.json")', 'Path(model_path) / "net" / "config.json"'
    )
    text = scaffold_cli("verify", quilt, "--init").out
    assert 'weights = "parts/quilt.safetensors"' in text
    assert '[verify.files."net/config.json"]' in text


def test_the_pipeline_below_an_adapter_is_found_by_the_name_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from vllm_omni.diffusion.models.fog import pipeline_fog as fog\n"
        "import vllm_omni.diffusion.models.dew.dew as d\n\n\n"
        "class One(fog.FogPipeline):\n    pass\n\n\nclass Two(d.DewPipeline):\n    pass\n"
    )
    models = "vllm_omni.diffusion.models"
    found = [(f"{models}.fog.pipeline_fog", "FogPipeline"), (f"{models}.dew.dew", "DewPipeline")]
    assert list(upstream_bases(tmp_path, tmp_path)) == found


@pytest.mark.upstream
def test_a_package_of_which_nothing_ran_is_no_pass(warm: None, quilt: Path, scaffold_cli: Callable[..., Any]) -> None:
    """One contract reads text only and passes; what would run it needs the table, which is printed."""
    (quilt / "verify.toml").unlink()
    done = scaffold_cli("verify", quilt, "--select", "forward", "--select", "signatures")
    assert (done.code, "1 pass, 0 fail, 1 skip" in done.out) == (2, True), done.out
    assert "verify.toml beside the package has to say [verify] image" in done.err
    assert 'latents = "?"' in done.err


@pytest.mark.upstream
def test_what_is_declared_is_not_trusted(results: Any, quilt: Path, edit: Callable[..., None]) -> None:
    edit(quilt / "verify.toml", "caption_dim = 20", "caption_dim = 24")
    found = results(quilt, "forward")["forward"]
    assert found.status == "fail"
    assert "verify.toml declares what the module does not take" in found.reason
