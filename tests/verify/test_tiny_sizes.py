"""Settings of a model made small by their names, with what relates them kept."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from scaffold.verify.rollout.engine_side.tiny.shrink import DENOISER, ENCODER, Scale, shrunk


def test_sizes_fit_each_other() -> None:
    found = shrunk(
        {
            "hidden_size": 2520,
            "num_attention_heads": 21,
            "num_kv_heads": 7,
            "axes_dim_rope": (40, 40, 40),
            "axes_lens": (1024, 1664, 1664),
            "num_layers": 32,
            "num_refiner_layers": 2,
            "text_feat_dim": 2048,
            "in_channels": 16,
            "timestep_scale": 1000.0,
            "qk_norm": True,
        },
        DENOISER,
    )
    assert found["hidden_size"] // found["num_attention_heads"] == sum(found["axes_dim_rope"]) == DENOISER.head
    assert found["num_attention_heads"] == 2 * found["num_kv_heads"]
    assert (found["num_layers"], found["num_refiner_layers"]) == (2, 1)
    assert found["text_feat_dim"] == ENCODER.hidden
    kept = ("axes_lens", "in_channels", "timestep_scale", "qk_norm")
    assert [found[name] for name in kept] == [(1024, 1664, 1664), 16, 1000.0, True]


def test_as_many_key_value_heads_as_heads_stay_as_many() -> None:
    found = shrunk({"num_attention_heads": 32, "num_key_value_heads": 32}, ENCODER)
    assert found["num_attention_heads"] == found["num_key_value_heads"] == ENCODER.heads


def test_lists_follow_the_layers() -> None:
    settings = {
        "num_hidden_layers": 28,
        "layer_types": ["full_attention"] * 28,
        "deepstack_visual_indexes": [8, 16, 24],
        "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default"},
        "id2label": {0: "a", 1: "b"},
    }
    found = shrunk(settings, Scale(hidden=32, heads=4, head=8, layers=3))
    assert found["num_hidden_layers"] == 3
    assert found["layer_types"] == ["full_attention"] * 3
    assert found["deepstack_visual_indexes"] == [0, 1, 2]
    assert sum(found["rope_scaling"]["mrope_section"]) == 4
    assert found["id2label"] == {0: "a", 1: "b"}


def test_more_layers_than_the_model_has_are_of_its_kinds() -> None:
    found = shrunk(
        {"num_hidden_layers": 2, "layer_types": ["sliding", "full"]}, Scale(hidden=32, heads=4, head=8, layers=5)
    )
    assert found["layer_types"] == ["sliding", "full", "sliding", "full", "sliding"]


def test_a_class_of_diffusers_keeps_channels_and_what_is_as_wide_as_its_blocks() -> None:
    pytest.importorskip("diffusers")
    from scaffold.verify.rollout.engine_side.tiny.diffusers_denoiser import small_settings

    stated = {"num_attention_heads": 20, "attention_head_dim": 112, "cross_attention_dim": 2240}
    found = small_settings({**stated, "in_channels": 128, "vace_in_channels": 96, "caption_channels": 2304})
    assert found["cross_attention_dim"] == found["num_attention_heads"] * found["attention_head_dim"]
    assert [found[name] for name in ("in_channels", "vace_in_channels", "caption_channels")] == [
        128,
        96,
        ENCODER.hidden,
    ]


@pytest.mark.parametrize(
    ("name", "value", "small"),
    [
        ("ffn_dim", 14336, 64),
        ("moe_intermediate_size", 768, 16),
        ("num_experts_per_tok", 8, 2),
        ("audio_dim", 1024, ENCODER.hidden),
        ("cond_dim", 0, 0),
        ("window_size", (-1, -1), (-1, -1)),
        ("text_len", 512, 512),
        ("depth", 1, 1),
        ("encoder_layers", 32, DENOISER.layers),
        ("decoder_attention_heads", 20, DENOISER.heads),
    ],
)
def test_one_setting(name: str, value: object, small: object) -> None:
    assert shrunk({name: value}, DENOISER)[name] == small
