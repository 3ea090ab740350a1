"""Recognising a decoder in headers, and the parameters that follow."""

from __future__ import annotations

import dataclasses

import pytest

from scaffold.checkpoint import CheckpointHeaders, read_manifest
from scaffold.errors import ScaffoldError
from scaffold.files.resources import presets_root
from scaffold.spec.architecture import parameters, projection, recognise, table_side, time_embedder


@pytest.fixture(scope="module")
def released() -> CheckpointHeaders:
    return read_manifest(next((presets_root() / "manifests").glob("bagel*.json")))


def changed(headers: CheckpointHeaders, change) -> CheckpointHeaders:
    """Return headers whose tensors are those for which ``change(name, tensor)`` gives one."""
    entries = tuple(new for t in headers.entries if (new := change(t.name, t)) is not None)
    return dataclasses.replace(headers, entries=entries)


def test_the_parameters_are_those_of_the_rendered_module(reference_spec, training_module):
    import torch

    rendered = training_module(reference_spec)
    with torch.device("meta"):
        module = rendered.BagelForTraining(rendered.BagelTrainingConfig())
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert parameters(reference_spec.sections["architecture"], reference_spec.sections["latents"]) == expected


def test_sizes_come_from_shapes(released):
    seen = recognise(released)
    assert (seen["hidden_size"], seen["intermediate_size"], seen["num_hidden_layers"]) == (3584, 18944, 28)
    assert (seen["q_size"], seen["kv_size"], seen["head_dim"]) == (3584, 512, 128)
    assert (seen["qk_norm"], seen["qkv_bias"], seen["output_bias"]) == (True, True, False)
    assert seen["experts"] == "_moe_gen"


def test_another_suffix_is_another_suffix(released):
    other = changed(released, lambda name, t: dataclasses.replace(t, name=name.replace("_moe_gen", "_image")))
    assert recognise(other)["experts"] == "_image"


def test_one_set_of_weights_has_no_suffix(released):
    assert recognise(changed(released, lambda name, t: None if "_moe_gen" in name else t))["experts"] is None


def test_without_norms_and_biases(released):
    plain = changed(released, lambda name, t: None if "_norm" in name or name.endswith("q_proj.bias") else t)
    seen = recognise(plain)
    assert (seen["qk_norm"], seen["qkv_bias"], seen["head_dim"]) == (False, False, None)


def test_a_checkpoint_without_a_decoder_is_refused(released):
    with pytest.raises(ScaffoldError, match="the decoder must stand under one prefix"):
        recognise(changed(released, lambda name, t: None if "embed_tokens" in name else t))


def test_a_strange_feed_forward_block_is_refused(released):
    with pytest.raises(ScaffoldError, match="lacks 'language_model.model.layers.0.mlp.up_proj.weight'"):
        recognise(changed(released, lambda name, t: None if "mlp.gate_proj" in name or "mlp.up_proj" in name else t))


def test_shapes_that_leave_a_choice_are_decided_by_a_hint_or_not_at_all(released):
    square = {"vae2llm.weight": (64, 64), "llm2vae.weight": (64, 64), "time_embedder.mlp.0.weight": (64, 256)}

    def shrink(name, tensor):
        return dataclasses.replace(tensor, shape=square[name]) if name in square else None

    headers = changed(released, shrink)
    assert projection(headers, (64, 64), None) is None
    assert [projection(headers, (64, 64), hint) for hint in ("vae2llm", "llm2vae")] == ["vae2llm", "llm2vae"]
    found = time_embedder(headers, None)
    assert (found["time_embedder"], found["timestep_frequencies"]) == ("time_embedder", 256)


def test_a_position_table_that_is_not_square_is_refused(released):
    assert table_side(released, "latent_pos_embed.pos_embed") == 64
    longer = changed(released, lambda name, t: dataclasses.replace(t, shape=(4095, 8)) if "latent_pos" in name else t)
    with pytest.raises(ScaffoldError, match="not a square grid"):
        table_side(longer, "latent_pos_embed.pos_embed")


def test_layers_must_be_numbered_without_a_gap(released):
    def gap(name, tensor):
        return None if ".layers.13." in name else tensor

    with pytest.raises(ScaffoldError, match="lacks layer 13"):
        recognise(changed(released, gap))
