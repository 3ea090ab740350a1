"""A tiny checkpoint's text encoder and autoencoder are those of the user's own configuration files, made small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("diffusers")

import diffusers
import torch
import transformers

from scaffold.verify.rollout.engine_side.tiny.components import Components, NoTinyModelError, hold_places
from scaffold.verify.rollout.facts import _of_checkpoint

FILES: dict[str, dict[str, Any]] = {
    "transformer/config.json": {"dim": 1536, "heads": 12, "axes": [32, 48, 48], "in_channels": 128, "vocab_size": 9},
    "text_encoder/config.json": {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "d_model": 768,
        "num_layers": 12,
        "feed_forward_proj": "gated-gelu",
        "quantization_config": {"quant_method": "fp8"},
    },
    "speaker/config.json": {"model_type": "qwen3", "hidden_size": 2048, "num_hidden_layers": 28, "head_dim": 128},
    "vae/config.json": {
        "_class_name": "AutoencoderKL",
        "block_out_channels": [96, 192, 384],
        "down_block_types": ["DownEncoderBlock2D"] * 3,
        "up_block_types": ["UpDecoderBlock2D"] * 3,
        "latent_channels": 12,
        "layers_per_block": 2,
        "scaling_factor": 0.37,
        "shift_factor": 0.11,
        "mean_of_latents": [0.5],
    },
    "painter/config.json": {"hidden_size": 512, "levels": 3},
}


@pytest.fixture
def released(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "released"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(json.dumps(content))
    return _of_checkpoint(folder, "transformer")


def made(folder: Path, released: dict[str, Any], given: dict[str, dict[str, Any]] | None = None) -> Components:
    return Components(folder, [], given or {}, torch.float32, released["released"])


def test_sizes_are_small_and_the_rest_is_as_released(tmp_path: Path, released: dict[str, Any]) -> None:
    with made(tmp_path, released).answering():
        encoder = transformers.T5EncoderModel.from_pretrained(str(tmp_path), subfolder="text_encoder")
        speaker = transformers.AutoModel.from_pretrained(str(tmp_path), subfolder="speaker")
        vae = diffusers.AutoencoderKL.from_pretrained(str(tmp_path), subfolder="vae")
    assert (encoder.config.d_model, encoder.config.num_layers, encoder.config.is_gated_act) == (32, 2, True)
    assert type(speaker).__name__ == "Qwen3Model"  # no name of a folder says it
    assert (speaker.config.hidden_size, speaker.config.head_dim) == (32, 8)
    assert (tuple(vae.config.block_out_channels), vae.config.latent_channels) == ((8, 16, 32), 12)
    assert (vae.config.scaling_factor, vae.config.shift_factor) == (0.37, 0.11)
    assert vae.config.mean_of_latents == [0.5]  # what the class does not take, a pipeline may read
    assert vae.decode(torch.zeros(1, 12, 4, 4)).sample.shape == (1, 3, 16, 16)


def test_the_denoiser_has_the_latents_and_a_head_of_as_many_parts(released: dict[str, Any]) -> None:
    assert released["denoiser"] == {"dim": 96, "heads": 4, "axes": [8, 8, 8], "in_channels": 128, "vocab_size": 4096}


def test_values_of_scaffold_toml_go_first(tmp_path: Path, released: dict[str, Any]) -> None:
    with made(tmp_path, released, {"vae": {"latent_channels": 4}}).answering():
        vae = diffusers.AutoencoderKL.from_pretrained(str(tmp_path), subfolder="vae")
    assert vae.config.latent_channels == 4


def test_a_section_keeps_what_is_not_given(tmp_path: Path, released: dict[str, Any]) -> None:
    given = {"words": {"text_config": {"out_layers": [0, 1]}}}
    with made(tmp_path, released, given).answering():
        model = transformers.Mistral3ForConditionalGeneration.from_pretrained(str(tmp_path), subfolder="words")
    text = model.config.text_config
    assert (text.out_layers, text.hidden_size, text.num_hidden_layers) == ([0, 1], 32, 2)


def test_what_cannot_be_made_names_the_table(tmp_path: Path, released: dict[str, Any]) -> None:
    released["released"]["vae"]["norm_num_groups"] = 3
    table = r"set values in \[verify\.components\.vae\] of scaffold\.toml$"
    with made(tmp_path, released).answering(), pytest.raises(NoTinyModelError, match=table):
        diffusers.AutoencoderKL.from_pretrained(str(tmp_path), subfolder="vae")


def test_a_configuration_that_a_pipeline_reads_itself_is_not_taken_for_the_component(
    tmp_path: Path, released: dict[str, Any]
) -> None:
    for part in ("painter", "vae"):
        missing = FileNotFoundError(f"No such file: '{tmp_path}/{part}/config.json'")
        assert hold_places(tmp_path, missing, released["released"])
    assert json.loads((tmp_path / "painter/config.json").read_text()) == {"hidden_size": 96, "levels": 3}
    assert json.loads((tmp_path / "vae/config.json").read_text())["scaling_factor"] == 0.37
    with made(tmp_path, released).answering():
        assert diffusers.AutoencoderKL.from_pretrained(str(tmp_path), subfolder="vae").config.latent_channels == 12
