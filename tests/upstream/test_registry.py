"""The table of pipelines and the names a user may give."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.upstream import UpstreamSource, locate, read_registry, resolve_pipeline

TABLE = """
_DIFFUSION_MODELS = {
    "TwoPipeline": ("pair", "pipeline_two", "Two"),
    "OnePipeline": ("pair", "pipeline_one", "One"),
    "OtherKey": ("pair", "pipeline_two", "Two"),
    "Broken": ("pair",),
}
_DIFFUSION_MODELS["Alias"] = _DIFFUSION_MODELS["OnePipeline"]
"""


@pytest.fixture
def source(tmp_path: Path) -> UpstreamSource:
    models = tmp_path / "vllm_omni/diffusion/models/pair"
    models.mkdir(parents=True)
    (tmp_path / "vllm_omni/__init__.py").write_text("")
    (tmp_path / "vllm_omni/diffusion/registry.py").write_text(TABLE)
    (models / "__init__.py").write_text("")
    (models / "pipeline_one.py").write_text("class One: pass\nclass Unlisted: pass\n")
    (models / "pipeline_two.py").write_text("class Two: pass\n")
    return locate(str(tmp_path))


def test_entries_and_aliases(source: UpstreamSource) -> None:
    registry = read_registry(source)
    assert list(registry) == ["TwoPipeline", "OnePipeline", "OtherKey", "Alias"]
    assert registry["Alias"] == ("pair", "pipeline_one", "One")


def test_key_folder_and_class(source: UpstreamSource) -> None:
    by_key = resolve_pipeline(source, "OnePipeline")
    assert (by_key.class_name, by_key.registry_keys) == ("One", ("OnePipeline", "Alias"))
    assert resolve_pipeline(source, "Alias").registry_keys == ("Alias", "OnePipeline")
    by_folder = resolve_pipeline(source, "pair")
    assert (by_folder.class_name, by_folder.registry_keys) == ("Two", ("TwoPipeline", "OtherKey"))
    explicit = resolve_pipeline(source, "vllm_omni.diffusion.models.pair.pipeline_one:Unlisted")
    assert (explicit.class_name, explicit.registry_keys) == ("Unlisted", ())
    listed = resolve_pipeline(source, "vllm_omni.diffusion.models.pair.pipeline_one:One")
    assert listed == by_key


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OnPipeline", "nearest: OnePipeline"),
        ("zzzz", "nearest: "),
        ("vllm_omni.diffusion.models.pair.pipeline_one:Ones", "nearest: One"),
        ("vllm_omni.nowhere:One", "has no module"),
        ("vllm_omni.diffusion.models.pair:One", "is a package"),
        ("a b:c", "is not module:Class"),
        ("", "has no pipeline"),
    ],
)
def test_unknown_names(source: UpstreamSource, name: str, words: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        resolve_pipeline(source, name)
    assert words in caught.value.line


def test_version_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "vllm_omni/diffusion").mkdir(parents=True)
    (tmp_path / "vllm_omni/__init__.py").write_text("")
    (tmp_path / "vllm_omni/diffusion/registry.py").write_text("x = 1\n")
    with pytest.raises(ScaffoldError, match="has no table"):
        read_registry(locate(str(tmp_path)))
