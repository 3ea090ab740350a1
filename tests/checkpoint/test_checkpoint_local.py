"""Reading local checkpoints of every layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.checkpoint import TensorHeader, fold, manifest_text, read_checkpoint, read_manifest
from scaffold.checkpoint.layout import other_form
from scaffold.errors import ScaffoldError
from scaffold.files.resources import presets_root

Write = Callable[..., Path]


def test_one_file_with_configs(tmp_path: Path, weights: Write) -> None:
    weights(tmp_path / "m" / "ema.safetensors", {"a.w": ("BF16", [3, 5]), "b": ("F32", []), "empty": ("F32", [0, 7])})
    (tmp_path / "m" / "config.json").write_text('{"a": 1}')
    (tmp_path / "m" / "llm_config.json").write_text('{"b": [NaN, 1.5, -2]}')
    (tmp_path / "m" / "merges.json").write_text("[1, 2]")
    headers = read_checkpoint(tmp_path / "m")
    assert headers.tensors["a.w"] == TensorHeader("a.w", "BF16", (3, 5), "ema.safetensors")
    assert headers.tensors["b"].shape == ()
    assert headers.tensors["empty"].nbytes == 0
    assert headers.total_bytes == 34
    assert [(f.name, f.tensors, f.data_bytes) for f in headers.files] == [("ema.safetensors", 3, 34)]
    assert headers.configs["config.json"] == {"a": 1}
    assert sorted(headers.configs) == ["config.json", "llm_config.json"]
    assert headers.skipped == {"merges.json": "holds no JSON object"}
    assert headers.source == "m"
    assert {entry.name: entry.dtype for entry in headers.entries} == {"a.w": "BF16", "b": "F32", "empty": "F32"}


def test_shards_with_an_index(sharded: Path) -> None:
    for location in (sharded, sharded / "model.safetensors.index.json"):
        headers = read_checkpoint(location)
        assert list(headers.tensors) == ["layers.0.w", "layers.1.w", "norm.w"]
        assert headers.tensors["norm.w"].file == "model-00002-of-00002.safetensors"
        assert headers.configs == {"config.json": {"hidden_size": 4}}
        assert headers.total_bytes == 48


def test_headers_know_no_path(sharded: Path) -> None:
    headers = read_checkpoint(sharded)
    assert str(sharded.parent) not in repr(headers)
    assert headers.source == "sharded"
    assert [(row.pattern, row.count) for row in fold(headers.tensors)] == [("layers.{0..1}.w", 2), ("norm.w", 1)]
    last = headers.files[1]
    assert (last.name, last.tensors, last.data_bytes) == ("model-00002-of-00002.safetensors", 1, 16)


def test_the_index_decides(sharded: Path, weights: Write) -> None:
    weights(sharded / "merged.safetensors", {"norm.w": ("F32", [2])})
    headers = read_checkpoint(sharded)
    assert headers.tensors["norm.w"].file == "model-00002-of-00002.safetensors"
    assert headers.skipped["merged.safetensors"] == (
        "model.safetensors.index.json, which says what is read, does not name it"
    )
    only = headers.select(["model-00002-of-00002.safetensors"])
    assert list(only.tensors) == ["norm.w"]
    assert only.configs == headers.configs
    with pytest.raises(ScaffoldError, match="has no weight file x"):
        headers.select(["x"])


def test_two_files_with_the_same_keys_need_a_choice(tmp_path: Path, weights: Write) -> None:
    weights(tmp_path / "ema.safetensors", {"a": ("F32", [2])})
    weights(tmp_path / "model.safetensors", {"a": ("F32", [3])})
    headers = read_checkpoint(tmp_path)
    assert len(headers.files) == 2
    with pytest.raises(ScaffoldError, match=r"ema\.safetensors and model\.safetensors both hold 'a'"):
        _ = headers.tensors
    assert headers.select(["model.safetensors"]).tensors["a"].shape == (3,)
    assert read_checkpoint(tmp_path / "ema.safetensors").tensors["a"].shape == (2,)


def test_subfolders_only_without_weights_above(tmp_path: Path, weights: Write) -> None:
    weights(tmp_path / "transformer" / "x.safetensors", {"a": ("F32", [2])})
    weights(tmp_path / "vae" / "x.safetensors", {"b": ("F32", [2])})
    (tmp_path / "transformer" / "config.json").write_text("{}")
    (tmp_path / "transformer" / "x.safetensors.index.json").write_text('{"weight_map": {"a": "x.safetensors"}}')
    headers = read_checkpoint(tmp_path)
    assert [file.name for file in headers.files] == ["transformer/x.safetensors", "vae/x.safetensors"]
    assert list(headers.configs) == ["transformer/config.json"]
    weights(tmp_path / "top.safetensors", {"c": ("F32", [2])})
    assert list(read_checkpoint(tmp_path).tensors) == ["c"]


def test_pickles_are_named_and_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    for location in (tmp_path, tmp_path / "pytorch_model.bin"):
        with pytest.raises(ScaffoldError, match=r"pickled weights only \(pytorch_model\.bin\)") as caught:
            read_checkpoint(location)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "nowhere", "a\0b"])
def test_nothing_there(name: str) -> None:
    with pytest.raises(ScaffoldError):
        read_checkpoint(name)


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"holds no \.safetensors file"):
        read_checkpoint(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(ScaffoldError, match=r"neither a checkpoint folder nor a \.safetensors file"):
        read_checkpoint(tmp_path / "x.txt")


def test_large_files_are_not_read(tmp_path: Path, raw_weights: Write) -> None:
    size = 1 << 36
    header = {"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    raw_weights(tmp_path / "a.safetensors", header, size)
    assert read_checkpoint(tmp_path).total_bytes == size


def test_progress_is_reported(sharded: Path) -> None:
    seen: list[tuple[int, int]] = []
    read_checkpoint(sharded, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_packaged_manifest() -> None:
    path = presets_root() / "manifests" / "bagel-7b-mot.ema.json"
    headers = read_manifest(path)
    assert path.read_text(encoding="utf-8") == manifest_text(headers.entries)
    assert len(headers.tensors) == 1223
    last = headers.tensors["language_model.model.layers.27.self_attn.q_proj.weight"]
    assert (last.dtype, last.shape) == ("BF16", (3584, 3584))
    assert headers.total_bytes == 29_214_520_256
    assert headers.files[0].name == "ema.safetensors"
    assert headers.source == "manifest bagel-7b-mot"
    patterns = {row.pattern: row.count for row in fold(headers.tensors)}
    assert patterns["language_model.model.layers.{0..27}.self_attn.q_proj.weight"] == 28


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": 1}', '{"a": {"dtype": "F31", "shape": []}}', '{"a": {}}'])
def test_bad_manifest(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.w.json"
    path.write_text(text)
    with pytest.raises(ScaffoldError, match=r"m\.w\.json"):
        read_manifest(path)
    with pytest.raises(ScaffoldError, match="cannot read the manifest"):
        read_manifest(tmp_path / "none.json")


def test_an_adapter_is_no_model(tmp_path: Path, weights: Write) -> None:
    names = [f"base_model.model.layers.0.q_proj.lora_{side}.weight" for side in "AB"]
    weights(tmp_path / "adapter_model.safetensors", {name: ("F32", [2, 2]) for name in names})
    with pytest.raises(ScaffoldError, match=r"is a PEFT adapter of 2 tensors.*; merge it into its base model"):
        read_checkpoint(tmp_path)


def test_a_repository_of_a_hub_cache_is_its_main(tmp_path: Path, weights: Write) -> None:
    repository = tmp_path / "models--o--one"
    weights(repository / "blobs" / "abc", {"a": ("F32", [2])})
    (repository / "snapshots" / "0123").mkdir(parents=True)
    (repository / "snapshots" / "0123" / "a.safetensors").symlink_to("../../blobs/abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    assert list(read_checkpoint(repository).tensors) == list(read_checkpoint(tmp_path).tensors) == ["a"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("m-Q4_K.gguf", "GGUF, weights quantised for inference, and no .safetensors file; training needs the released"),
        (
            "__0_0.distcp",
            "a distributed checkpoint of torch, in parts, and no .safetensors file; `python -m torch.dist",
        ),
        ("m.onnx", "an exported graph, and no .safetensors file"),
    ],
)
def test_other_formats_are_named_with_the_way_from_there(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "transformer").mkdir()
    for file in (tmp_path / name, tmp_path / "transformer" / name):
        file.write_bytes(b"GGUF")
        for location in (file.parent, file):
            with pytest.raises(ScaffoldError) as caught:
                read_checkpoint(location)
            assert told in caught.value.line
        file.unlink()
        (tmp_path / "transformer" / name).write_bytes(b"GGUF")
    with pytest.raises(ScaffoldError) as caught:
        read_checkpoint(tmp_path)
    assert told in caught.value.line


@pytest.mark.parametrize(
    ("name", "tensor", "told"),
    [
        ("a.safetensors", "model.diffusion_model.a", "as single files for ComfyUI have them: give the folder that"),
        ("a.fp16.safetensors", "a", "is the fp16 variant of the weights: give the release's own, a.safetensors"),
        ("a.safetensors", "a", None),
    ],
)
def test_another_form_of_a_release_is_named_with_the_way_from_there(
    tmp_path: Path, weights: Write, name: str, tensor: str, told: str | None
) -> None:
    weights(tmp_path / name, {tensor: ("F16", [2])})
    found = other_form(read_checkpoint(tmp_path))
    assert (found is None) == (told is None)
    assert told is None or told in str(found)


def test_variants_of_the_same_weights_are_said_to_be(tmp_path: Path, weights: Write) -> None:
    for name in ("model.safetensors", "model.fp16.safetensors"):
        weights(tmp_path / name, {"a": ("F16", [2])})
    with pytest.raises(ScaffoldError) as caught:
        read_checkpoint(tmp_path).tensors  # noqa: B018
    assert "both hold 'a', being variants of the same weights; name the one file" in caught.value.line
