"""Inferring the map from keys, parameters and shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.checkpoint import CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.errors import ScaffoldError
from scaffold.remap import KeyMap, Rule, infer_key_map, prove, rendered_table

Make = Callable[..., CheckpointHeaders]
Shapes = dict[str, tuple[int, ...]]


def pairs(key_map: KeyMap) -> list[tuple[str, str | None]]:
    return [(rule.source, rule.target) for rule in key_map.rules]


def layers(prefix: str, count: int = 3, width: int = 8) -> Shapes:
    return {
        f"{prefix}layers.{n}.{name}.weight": shape
        for n in range(count)
        for name, shape in {"attn.q": (width, width), "mlp.up": (32, width), "norm": (width,)}.items()
    }


def test_the_real_checkpoint(real: CheckpointHeaders, parameters: Shapes) -> None:
    key_map = infer_key_map(
        real, parameters, drop_reasons={"vit_model.": "image understanding", "connector.": "image understanding"}
    )
    assert pairs(key_map) == [
        ("latent_pos_embed.", "latent_pos_embed."),
        ("time_embedder.", "time_embedder."),
        ("llm2vae.", "llm2vae."),
        ("vae2llm.", "vae2llm."),
        ("language_model.model.", ""),
        ("connector.", None),
        ("language_model.lm_head.", None),
        ("vit_model.", None),
        ("vit_pos_embed.", None),
    ]
    assert [rule.reason for rule in key_map.rules[5:]] == [
        "image understanding",
        "not a parameter of the training module",
        "image understanding",
        "not a parameter of the training module",
    ]
    assert prove(key_map, real, parameters).holds


def test_the_order_of_keys_and_parameters_does_not_matter(real: CheckpointHeaders, parameters: Shapes) -> None:
    backwards = CheckpointHeaders(real.source, real.files, real.entries[::-1])
    assert infer_key_map(backwards, dict(reversed(parameters.items()))) == infer_key_map(real, parameters)


@pytest.mark.parametrize(
    ("keys", "parameters", "expected"),
    [
        # Everything under its own name.
        (layers(""), layers(""), [("", "")]),
        (layers("model."), layers(""), [("model.", "")]),
        (layers("model."), layers("net.body."), [("model.", "net.body.")]),
        (layers(""), layers("net."), [("layers.", "net.layers.")]),
        # Numbers in the prefixes correspond, or are fixed.
        (
            {f"stage.{n}.core.{k}": v for n in range(2) for k, v in layers("").items()},
            {f"parts.{n}.{k}": v for n in range(2) for k, v in layers("").items()},
            [("stage.{n}.core.", "parts.{n}.")],
        ),
        (layers("0.model."), layers(""), [("0.model.", "")]),
        # Another tower of equal names and other shapes is not a rival.
        (layers("a.") | layers("b.", width=4), layers(""), [("a.", ""), ("b.", None)]),
        # One block inside each layer has another name.
        (
            {k.replace("attn.q", "self.attn.q"): v for k, v in layers("m.").items()},
            {k.replace("attn.q", "self.attn.q"): v for k, v in layers("").items()},
            [("m.", "")],
        ),
        # A single key with braces in its name.
        (
            layers("m{n}.") | {"{%x%}.w": (1,)},
            layers(""),
            [("m{{n}}.", ""), ("{{%x%}}.", None)],
        ),
        ({"scale": (1,), "scale.a": (2,)}, {"scale": (1,)}, [("scale", "scale"), ("scale.a", None)]),
    ],
)
def test_prefixes(keys: Shapes, parameters: Shapes, expected: list[tuple[str, str | None]], headers: Make) -> None:
    key_map = infer_key_map(headers(keys), parameters)
    assert pairs(key_map) == expected
    assert prove(key_map, headers(keys), parameters).holds


def test_exceptions_inside_a_prefix_come_first(headers: Make) -> None:
    keys = layers("m.") | {f"m.layers.{n}.rope.inv_freq": (4,) for n in range(3)} | {"m.head.weight": (9, 9)}
    key_map = infer_key_map(headers(keys), layers(""), drop_reasons={"m.layers.{n}.rope.": "computed"})
    assert pairs(key_map) == [("m.head.", None), ("m.layers.{n}.rope.", None), ("m.", "")]
    assert prove(key_map, headers(keys), layers("")).holds


def test_fewer_layers_need_a_reason(headers: Make) -> None:
    keys = layers("m.", 4)
    with pytest.raises(ScaffoldError, match=r"6 keys .* left over .* first 'm\.layers\.2\.attn\.q\.weight'"):
        infer_key_map(headers(keys), layers("", 2))
    key_map = infer_key_map(headers(keys), layers("", 2), drop_reasons={"m.layers.2.": "cut", "m.layers.3.": "cut"})
    assert pairs(key_map) == [
        ("m.layers.0.", "layers.0."),
        ("m.layers.1.", "layers.1."),
        ("m.layers.2.", None),
        ("m.layers.3.", None),
    ]
    assert prove(key_map, headers(keys), layers("", 2)).holds


@pytest.mark.parametrize(
    ("keys", "parameters", "message"),
    [
        # Two towers fill the module equally well.
        (layers("ema.") | layers("model."), layers(""), r"could be 'ema\.layers\.0.*' or 'model\.layers\.0"),
        # A key is gone.
        (
            {k: v for k, v in layers("m.").items() if k != "m.layers.1.mlp.up.weight"},
            layers(""),
            r"1 of 9 parameters .* first 'layers\.1\.mlp\.up\.weight' of shape \[32, 8\]; no unmapped key",
        ),
        # A key has another name: it is named, not taken.
        (
            {k.replace("layers.1.mlp.up", "layers.1.mlp.wide"): v for k, v in layers("m.").items()},
            layers(""),
            r"'layers\.1\.mlp\.up\.weight' of shape \[32, 8\]; the nearest .* 'm\.layers\.1\.mlp\.wide\.weight'",
        ),
        # Another shape.
        (
            layers("m.") | {"m.layers.1.norm.weight": (9,)},
            layers(""),
            r"'layers\.1\.norm\.weight': it has shape \[8\], m\.layers\.1\.norm\.weight \[9\]",
        ),
        # A single key elsewhere with the same ending and shape is coincidence.
        (
            layers("m.") | {"vision.final.norm.weight": (8,)},
            layers("") | {"final.norm.weight": (8,)},
            r"'final\.norm\.weight' of shape \[8\]; the nearest .* 'vision\.final\.norm\.weight'",
        ),
        # A layer has a key that the module has no parameter for.
        (
            layers("m.") | {"m.layers.1.attn.q.bias": (8,)},
            layers(""),
            r"1 keys .* left over inside layers .* first 'm\.layers\.1\.attn\.q\.bias'",
        ),
        ({"a": (1,)}, {}, "no parameters"),
    ],
)
def test_nothing_is_guessed(keys: Shapes, parameters: Shapes, message: str, headers: Make) -> None:
    with pytest.raises(ScaffoldError, match=message) as caught:
        infer_key_map(headers(keys), parameters)
    assert "\n" not in caught.value.line


def test_a_missing_twin_is_named_and_not_taken_from_the_other(
    real: CheckpointHeaders, parameters: Shapes, keys: Shapes, headers: Make
) -> None:
    for part in ("mlp.up_proj.weight", "mlp_moe_gen.up_proj.weight", "self_attn.q_proj_moe_gen.bias"):
        lost = f"language_model.model.layers.5.{part}"
        there = headers({name: shape for name, shape in keys.items() if name != lost})
        with pytest.raises(ScaffoldError) as caught:
            infer_key_map(there, parameters)
        line = caught.value.line
        assert line.startswith(f"1 of 796 parameters are filled by no key of the checkpoint, first 'layers.5.{part}'")
        assert f"by the names of the others, {lost!r} is missing" in line
        proof = prove(infer_key_map(there, parameters, partial=True), there, parameters)
        assert [(offender.check, offender.name) for offender in proof.offenders] == [("fills", f"layers.5.{part}")]


def test_a_partial_map_is_found_wanting(headers: Make) -> None:
    keys = layers("m.") | {"m.layers.1.norm.weight": (9,), "m.layers.2.attn.q.bias": (8,)}
    proof = prove(infer_key_map(headers(keys), layers(""), partial=True), headers(keys), layers(""))
    found = {(offender.check, offender.name) for offender in proof.offenders}
    assert ("shapes", "m.layers.1.norm.weight") in found
    assert ("covers", "m.layers.2.attn.q.bias") in found
    assert proof.passes("fills")


def test_known_rules_come_first(headers: Make) -> None:
    keys = layers("m.") | {"vision.final.norm.weight": (8,)}
    wanted = layers("") | {"final.norm.weight": (8,)}
    rule = Rule("vision.final.", "final.")
    key_map = infer_key_map(headers(keys), wanted, known=[rule])
    assert key_map.rules[0] == rule
    assert prove(key_map, headers(keys), wanted).holds
    with pytest.raises(ScaffoldError, match="has shape"):
        infer_key_map(headers(keys | {"vision.final.norm.weight": (7,)}), wanted, known=[rule])
    with pytest.raises(ScaffoldError, match="no parameter that is still to fill"):
        infer_key_map(headers(keys), wanted, known=[Rule("vision.final.", "first.")])


def test_computed_parameters_need_no_key(headers: Make) -> None:
    wanted = layers("") | {"table": (5, 5)}
    with pytest.raises(ScaffoldError, match="'table'"):
        infer_key_map(headers(layers("m.")), wanted)
    key_map = infer_key_map(headers(layers("m.")), layers(""))
    assert prove(key_map, headers(layers("m.")), wanted, computed=["table"]).holds
    assert not prove(key_map, headers(layers("m.")), wanted).holds


def test_the_table_for_readers(real: CheckpointHeaders, parameters: Shapes) -> None:
    key_map = infer_key_map(real, parameters)
    rows = {row.source: row for row in rendered_table(key_map, real)}
    row = rows["language_model.model.layers.{0..27}.mlp_moe_gen.up_proj.weight"]
    assert (row.target, row.count) == ("layers.{0..27}.mlp_moe_gen.up_proj.weight", 28)
    assert rows["time_embedder.mlp.{0,2}.bias"].count == 2
    assert (rows["vit_model."].target, rows["vit_model."].count) == (None, 421)
    assert sum(row.count for row in rows.values()) == 1223


odd = st.text(alphabet=st.sampled_from("a.{}0'\"\n%$\\(*"), max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(odd, st.integers(1, 3), min_size=1, max_size=8), st.sampled_from(["", "p.", "{n}.", "0."]))
def test_any_names_are_mapped_or_an_error(sizes: dict[str, int], prefix: str) -> None:
    wanted = {name: (size,) for name, size in sizes.items()}
    entries = tuple(TensorHeader(prefix + name, "F32", shape, "w") for name, shape in wanted.items())
    checkpoint = CheckpointHeaders("t", (CheckpointFile("w", len(entries), 0),), entries)
    try:
        key_map = infer_key_map(checkpoint, wanted)
    except ScaffoldError:
        return
    proof = prove(KeyMap.from_data(key_map.to_data()), checkpoint, wanted)
    assert all(proof.passes(check) for check in ("covers", "fills", "injective", "shapes", "no_dead_rule"))
