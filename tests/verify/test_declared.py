"""``verify.toml`` of a hand-written package: asked for, written as far as known, and checked against what happens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.verify.declared import read_declared
from scaffold.verify.package import embedded_length, open_package, registered, upstream_bases

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


def test_a_table_that_is_no_utf_8_is_refused_in_a_line(quilt: Path, scaffold_cli: Callable[..., Any]) -> None:
    (quilt / "verify.toml").write_bytes("[verify]\npatch = 2 # fl\u00e4che".encode("latin-1"))
    refused = scaffold_cli("verify", quilt, "--select", "registration").refusal(2)
    assert "verify.toml is not UTF-8; save it as UTF-8" in refused


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
    assert 'prompt_embeds = ["?", "?"]  # read at quilt.py:' in text, "how many tokens it hands over is not seen"
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


def test_init_nests_sizes_as_the_loader_reads_them(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    """And offers no file that is written alone."""
    shutil.copytree(FOLDER / "nested_sizes", tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    package = next((tmp_path / "tree" / "verl_omni" / "pipelines").iterdir())
    declared = tomli.loads((package / "verify.toml").read_text(encoding="utf-8"))["verify"]["files"]
    (package / "verify.toml").unlink()
    found = tomli.loads(scaffold_cli("verify", package, "--init").out.partition("\nnext: ")[0])["verify"]["files"]
    assert {file: {key: set(sizes) for key, sizes in table.items()} for file, table in found.items()} == {
        file: {key: set(sizes) for key, sizes in table.items()} for file, table in declared.items()
    }


def test_init_offers_the_file_that_a_librarys_configuration_reads(
    quilt: Path, edit: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    (quilt / "verify.toml").unlink()
    source = quilt / "quilt.py"
    text = source.read_text(encoding="utf-8")
    own = text[text.index("@dataclasses.dataclass\n") : text.index("def _home(")]
    edit(source, own, "class QuiltConfig(PretrainedConfig):\n    pass\n\n\n")
    edit(
        source,
        "QuiltSizes.from_model_path(model_path)",
        'QuiltConfig.from_pretrained(model_path, subfolder="denoiser")',
    )
    text = scaffold_cli("verify", quilt, "--init").out
    assert '[verify.files."denoiser/config.json"]' in text
    assert '"?" = "?"' in text


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


@pytest.mark.upstream
def test_places_that_are_still_to_be_written_are_named(
    warm: None, quilt: Path, scaffold_cli: Callable[..., Any]
) -> None:
    assert scaffold_cli("verify", quilt, "--select", "forward").code == 0
    with (quilt / "quilt.py").open("a", encoding="utf-8") as file:
        file.write(
            '\n\ndef late(x):\n    raise NotImplementedError("the shift: port own/pipe.py:12 of vllm-omni 0.30.0")\n'
        )
        file.write('\n\ndef other(x):\n    raise NotImplementedError("not for video")\n')
    done = scaffold_cli("verify", quilt, "--select", "forward")
    assert (done.code, "1 pass, 0 fail" in done.out) == (2, True)
    assert "1 place of it is still to be written: quilt.py:" in done.err
    assert "the shift, as own/pipe.py:12 does" in done.err


@pytest.mark.parametrize(
    ("script", "length"),
    [
        ("", 512),
        ("    rollout.pipeline.max_sequence_length=256 \\\n", 256),
        ("    rollout.pipeline.max_sequence_length=256 rollout.max_prompt_embed_length=333\n", 333),
        ("WORDS=${WORDS:-77}\n    rollout.pipeline.max_sequence_length=$WORDS\n", 77),
        ('    rollout.pipeline.max_sequence_length="${UNKNOWN}"\n', 512),
    ],
)
def test_embeddings_are_padded_to_what_the_launch_script_sets(script: str, length: int, quilt: Path) -> None:
    package = open_package(quilt)
    folder = package.root / "examples" / "flowgrpo_trainer" / "quilt"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run_another.sh").write_text("model.architecture=Another rollout.max_prompt_embed_length=9\n")
    (folder / "run_quilt.sh").write_text("#!/bin/bash\n" + script + "    model.architecture=QuiltPipeline\n")
    assert embedded_length(package) == length


def test_architectures_are_those_of_verl_omnis_bases(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from verl_omni.pipelines.model_base import DiffusionModelBase as Base\n"
        "import verl_omni.pipelines.model_base as model_base\n"
        "from .builders import BUILDERS, BuilderBase\n\nNAME = 'Named'\n\n\n"
        "@BUILDERS.register('small')\nclass Small: ...\n\n\n"
        "@BuilderBase.register('large')\nclass Large: ...\n\n\n"
        "@Base.register(NAME, algorithm='flow_grpo')\nclass One: ...\n\n\n"
        "@model_base.VllmOmniPipelineBase.register(\n    'Rolled', algorithm='flow_grpo')\nclass Two: ...\n"
    )
    (tmp_path / "two.py").write_text(
        "from ..model_base import VllmOmniPipelineBase as R\n\n@R.register('Near')\nclass T: ...\n"
    )
    assert registered(tmp_path) == {"Named", "Rolled", "Near"}
    assert registered(tmp_path, "VllmOmniPipelineBase") == {"Rolled", "Near"}
    assert registered(tmp_path, "DiffusionModelBase") == {"Named"}


def test_init_says_nothing_of_times_that_it_has_not_seen(
    quilt: Path, edit: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    (quilt / "verify.toml").unlink()
    edit(quilt / "quilt.py", "scheduler.timesteps = ", "_ = ")
    text = scaffold_cli("verify", quilt, "--init").out
    assert 'time = "?"  # timestep of a noise level' in text
    assert "set_timesteps of VeRL-Omni makes '1000 sigma'" in text
