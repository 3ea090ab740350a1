"""Splits and joins: as data, applied, inverted, proved, inferred from upstream's table of packed parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import ScaffoldError
from scaffold.remap import KeyMap, Mapped, Rule, SourceRule, SourceRules, infer_key_map, prove, rendered_table

Make = Callable[..., CheckpointHeaders]
Shapes = dict[str, tuple[int, ...]]
QKV = Rule("m.{n}.qkv.", None, "split", parts=("{n}.q.", "{n}.k.", "{n}.v."))
MLP = Rule(None, "{n}.gate_up.w", "join", parts=("m.{n}.gate.w", "m.{n}.up.w"), axis=1, sizes=(3, 5))
REST = Rule("m.", "")
KEYS: Shapes = {
    name: shape
    for n in range(2)
    for name, shape in {
        f"m.{n}.qkv.weight": (12, 4),
        f"m.{n}.qkv.bias": (12,),
        f"m.{n}.gate.w": (2, 3),
        f"m.{n}.up.w": (2, 5),
        f"m.{n}.norm": (4,),
    }.items()
}
PARAMETERS: Shapes = {
    name: shape
    for n in range(2)
    for name, shape in {
        f"{n}.q.weight": (8, 4),
        f"{n}.k.weight": (2, 4),
        f"{n}.v.weight": (2, 4),
        f"{n}.q.bias": (8,),
        f"{n}.k.bias": (2,),
        f"{n}.v.bias": (2,),
        f"{n}.gate_up.w": (2, 8),
        f"{n}.norm": (4,),
    }.items()
}
GOOD = KeyMap((QKV, MLP, REST))


def test_data_round_trip() -> None:
    data = json.loads(json.dumps(GOOD.to_data()))
    assert KeyMap.from_data(data) == GOOD
    assert data[0] == {"source": "m.{n}.qkv.", "op": "split", "parts": ["{n}.q.", "{n}.k.", "{n}.v."], "axis": 0}
    assert data[1]["sizes"] == [3, 5]
    assert "source" not in data[1]
    import tomli
    import tomli_w

    assert KeyMap.from_data(tomli.loads(tomli_w.dumps({"rules": data}))["rules"]) == GOOD
    told = Rule("a.", "b.", origin="me")
    assert Rule.from_data(told.to_data()).origin == "me"
    assert told == Rule("a.", "b.")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"op": "split", "source": "a."}, "two to 64 different parts"),
        ({"op": "split", "source": "a.", "parts": ["b."]}, "two to 64 different parts"),
        ({"op": "split", "source": "a.", "parts": ["b.", "b."]}, "two to 64 different parts"),
        ({"op": "split", "parts": ["b.", "c."]}, "no source"),
        ({"op": "split", "source": "a.", "target": "d.", "parts": ["b.", "c."]}, "splits keys and has a target"),
        ({"op": "split", "source": "a.", "parts": ["b.", "c"]}, "one side is a prefix"),
        ({"op": "split", "source": "a.{n}.", "parts": ["b.{n}.", "c."]}, "same placeholders"),
        ({"op": "split", "source": "a.", "parts": ["b.", "c."], "axis": -1}, "axis -1"),
        ({"op": "split", "source": "a.", "parts": ["b.", "c."], "axis": 64}, "axis 64"),
        ({"op": "split", "source": "a.", "parts": ["b.", "c."], "axis": True}, "axis is not a whole number"),
        ({"op": "split", "source": "a.", "parts": ["b.", "c."], "sizes": [1, 2]}, "a split has no sizes"),
        ({"op": "split", "source": "a.", "parts": "b.c."}, "parts is not a list"),
        ({"op": "split", "source": "a.", "parts": [1, "b."]}, "part is not text"),
        ({"op": "join", "parts": ["b.", "c."]}, "no target"),
        ({"op": "join", "source": "a.", "target": "d.", "parts": ["b.", "c."]}, "joins keys and has a source"),
        ({"op": "join", "target": "d.", "parts": ["b.", "c."], "sizes": [1]}, "one positive number for each part"),
        ({"op": "join", "target": "d.", "parts": ["b.", "c."], "sizes": [1, 0]}, "one positive number for each part"),
        ({"op": "join", "target": "d.", "parts": ["b.", "c."], "sizes": [1, "2"]}, "size is not a whole number"),
        ({"op": "rename", "source": "a.", "target": "b.", "parts": ["c.", "d."]}, "belong to split and join"),
        ({"op": "drop", "source": "a.", "reason": "x", "axis": 1}, "belong to split and join"),
    ],
)
def test_malformed(data: Any, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        Rule.from_data(data)


def test_there_and_back(headers: Make) -> None:
    assert GOOD.apply("m.1.qkv.bias") == Mapped("1.q.bias", 0, ("1.k.bias", "1.v.bias"))
    assert GOOD.apply("m.1.up.w") == Mapped("1.gate_up.w", 1, place=1)
    assert GOOD.inverse("1.k.weight") == ("m.1.qkv.weight",)
    assert GOOD.inverse("1.gate_up.w") == ("m.1.gate.w", "m.1.up.w")
    assert GOOD.invert("1.gate_up.w") is None
    assert GOOD.invert("0.norm") == "m.0.norm"
    assert KeyMap((QKV, MLP)).inverse("nobody") == ()
    applied = GOOD.apply_all(headers(KEYS))
    assert applied.problems == ()
    assert applied.sources["0.gate_up.w"] == ("m.0.gate.w", "m.0.up.w")
    assert applied.matches == (4, 4, 2)


def test_the_proof(headers: Make) -> None:
    proof = prove(GOOD, headers(KEYS), PARAMETERS)
    assert proof.holds
    assert proof.offenders == ()
    assert proof.counts == {
        "checkpoint": 10,
        "mapped": 10,
        "ignored": 0,
        "unexplained": 0,
        "parameters": 16,
        "unfilled": 0,
    }
    data = proof.to_json()
    assert data["rules"][0] == {"from": "m.{n}.qkv.", "to": ["{n}.q.", "{n}.k.", "{n}.v."], "matches": 4}
    assert data["rules"][1]["from"] == ["m.{n}.gate.w", "m.{n}.up.w"]
    ops = [(entry["target"], entry["op"]) for entry in data["entries"] if entry["source"] == "m.0.qkv.bias"]
    assert ops == [("0.q.bias", "split"), ("0.k.bias", "split"), ("0.v.bias", "split")]
    rows = {(row.source, row.note): row for row in rendered_table(GOOD, headers(KEYS))}
    row = rows["m.{0..1}.qkv.weight", "part 2 of 3"]
    assert (row.target, row.count) == ("{0..1}.k.weight", 2)
    assert rows["m.{0..1}.up.w", "part 2 of 2"].target == "{0..1}.gate_up.w"
    assert len(rows) == 2 * 3 + 2 + 1


@pytest.mark.parametrize(
    ("keys", "parameters", "rules", "check", "message"),
    [
        ({"m.1.qkv.weight": (11, 4)}, {}, GOOD.rules, "shapes", r"parts along axis 0 make \[12, 4\]"),
        ({"m.1.qkv.weight": (12, 5)}, {}, GOOD.rules, "shapes", r"shape \[12, 5\], its parts"),
        ({}, {"1.k.weight": (2, 5)}, GOOD.rules, "shapes", "do not go together"),
        ({"m.1.up.w": (2, 4)}, {}, GOOD.rules, "shapes", r"make \[2, 7\], their parameter '1\.gate_up\.w'"),
        ({"m.1.up.w": (2, 4), "m.1.gate.w": (2, 4)}, {}, GOOD.rules, "shapes", r"\[4, 4\] long .* says \[3, 5\]"),
        ({"m.1.up.w": None}, {}, GOOD.rules, "fills", r"joined from 2 keys, and the checkpoint lacks 'm\.1\.up\.w'"),
        ({"m.1.qkv.weight": None}, {}, GOOD.rules, "fills", r"no key fills the parameter '1\.q\.weight'"),
        ({}, {"1.v.weight": None}, GOOD.rules, "covers", r"becomes '1\.v\.weight', which is not a parameter"),
        (
            {"1.q.weight": (8, 4)},
            {},
            (QKV, MLP, REST, Rule("1.q.", "1.q.")),
            "injective",
            r"both become '1\.q\.weight'",
        ),
        ({}, {}, (QKV, MLP, REST, Rule("x.", None, "split", parts=("y.", "z."))), "no_dead_rule", r"'x\.' matches no"),
        (
            {},
            {},
            (QKV, MLP, REST, Rule("1.k.", None, "drop", "no")),
            "invertible",
            r"'1\.k\.weight' is a target, and is dropped",
        ),
    ],
)
def test_what_is_wrong_is_named(
    keys: dict[str, Any], parameters: dict[str, Any], rules: tuple[Rule, ...], check: str, message: str, headers: Make
) -> None:
    there = {name: shape for name, shape in (KEYS | keys).items() if shape is not None}
    wanted = {name: shape for name, shape in (PARAMETERS | parameters).items() if shape is not None}
    proof = prove(KeyMap(rules), headers(there), wanted)
    assert not proof.passes(check)
    assert any(re_search(message, offender.message) for offender in proof.offenders if offender.check == check)


def re_search(pattern: str, text: str) -> bool:
    import re

    return re.search(pattern, text) is not None


STACKED = (
    (".qkv", ".q", "q"),
    (".qkv", ".k", "k"),
    (".qkv", ".v", "v"),
    (".gate_up", ".gate", 0),
    (".gate_up", ".up", 1),
)


def test_the_order_is_upstreams(headers: Make) -> None:
    assert prove(GOOD, headers(KEYS), PARAMETERS, stacked=STACKED).holds
    for wrong in (
        Rule("m.{n}.qkv.", None, "split", parts=("{n}.q.", "{n}.v.", "{n}.k.")),
        Rule(None, "{n}.gate_up.w", "join", parts=("m.{n}.up.w", "m.{n}.gate.w"), axis=1, sizes=(5, 3)),
    ):
        rules = tuple(wrong if rule.op == wrong.op else rule for rule in GOOD.rules)
        assert prove(KeyMap(rules), headers(KEYS), PARAMETERS).holds
        proof = prove(KeyMap(rules), headers(KEYS), PARAMETERS, stacked=STACKED)
        assert not proof.holds
        assert [offender.check for offender in proof.offenders] == ["engine"]
        assert "upstream packs" in proof.offenders[0].message


def layers(prefix: str, **changes: Any) -> Shapes:
    names = {"attn.q_proj": (8, 8), "attn.k_proj": (4, 8), "attn.v_proj": (4, 8), "mlp.gate_proj": (6, 8)}
    names |= {"mlp.up_proj": (6, 8), "norm": (8,)}
    names |= changes
    return {f"{prefix}layers.{n}.{k}.weight": shape for n in range(3) for k, shape in names.items() if shape}


def source_of(*rules: SourceRule) -> SourceRules:
    return SourceRules(rules, "vllm_omni/x.py:7")


PACKED = source_of(
    *(SourceRule("stacked", "contains", f".{s}_proj", ".qkv_proj", s, "vllm_omni/x.py", 9) for s in "qkv"),
    SourceRule("stacked", "contains", ".mlp.up_proj", ".mlp.gate_up_proj", 1, "vllm_omni/x.py", 12),
    SourceRule("stacked", "contains", ".mlp.gate_proj", ".mlp.gate_up_proj", 0, "vllm_omni/x.py", 13),
)
APART: dict[str, Any] = dict.fromkeys(("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.gate_proj", "mlp.up_proj"))
TOGETHER = {"attn.qkv_proj": (16, 8), "mlp.gate_up_proj": (12, 8)}


def test_a_fused_checkpoint_is_split_in_upstreams_order(headers: Make) -> None:
    keys = headers(layers("m.", **APART, **TOGETHER))
    key_map = infer_key_map(keys, layers(""), source=PACKED)
    assert [(rule.op, rule.source, rule.parts or rule.target) for rule in key_map.rules] == [
        (
            "split",
            "m.layers.{n}.attn.qkv_proj.",
            tuple(f"layers.{{n}}.attn.{s}_proj." for s in "qkv"),
        ),
        (
            "split",
            "m.layers.{n}.mlp.gate_up_proj.",
            ("layers.{n}.mlp.gate_proj.", "layers.{n}.mlp.up_proj."),
        ),
        ("rename", "m.", ""),
    ]
    assert key_map.rules[0].origin == "upstream's loader, vllm_omni/x.py:7"
    assert prove(key_map, keys, layers(""), stacked=PACKED.stacked).holds
    with pytest.raises(ScaffoldError, match="18 of 18 parameters are filled by no key"):
        infer_key_map(keys, layers(""))


def test_a_fused_module_joins_in_upstreams_order(headers: Make) -> None:
    keys, wanted = headers(layers("m.")), layers("", **APART, **TOGETHER)
    key_map = infer_key_map(keys, wanted, source=PACKED)
    joins = {rule.target: rule for rule in key_map.rules if rule.op == "join"}
    assert joins["layers.{n}.attn.qkv_proj."].parts == tuple(f"m.layers.{{n}}.attn.{s}_proj." for s in "qkv")
    assert joins["layers.{n}.attn.qkv_proj."].sizes == (8, 4, 4)
    assert joins["layers.{n}.mlp.gate_up_proj."].sizes is None
    assert prove(key_map, keys, wanted, stacked=PACKED.stacked).holds


def test_tables_that_contradict_each_other_are_an_error(headers: Make) -> None:
    twice = SourceRule("stacked", "contains", ".mlp.up_proj", ".mlp.gate_up_proj", 0, "vllm_omni/y.py", 3)
    with pytest.raises(ScaffoldError, match=r"place '\.mlp\.up_proj' of '\.mlp\.gate_up_proj' at \['0', '1'\]"):
        infer_key_map(headers(layers("m.")), layers(""), source=source_of(*PACKED.rules, twice))


def test_names_that_upstream_renames_inside_a_layer(headers: Make) -> None:
    there = {name.replace("attn.q_proj", "attn.to_q.0"): shape for name, shape in layers("m.").items()}
    there = {name.replace("mlp.up_proj", "ff.up"): shape for name, shape in there.items()}
    source = source_of(
        SourceRule("rename", "contains", ".to_q.0.", ".q_proj.", None, "vllm_omni/x.py", 4),
        SourceRule("rename", "contains", ".ff.up.", ".mlp.up_proj.", None, "vllm_omni/x.py", 5),
        SourceRule("rename", "prefix", "ema.", "", None, "vllm_omni/x.py", 6),
    )
    with pytest.raises(ScaffoldError, match="filled by no key"):
        infer_key_map(headers(there), layers(""))
    key_map = infer_key_map(headers(there), layers(""), source=source)
    assert {rule.source: rule.target for rule in key_map.rules} == {
        "m.layers.{n}.attn.to_q.0.": "layers.{n}.attn.q_proj.",
        "m.layers.{n}.ff.up.": "layers.{n}.mlp.up_proj.",
        "m.": "",
    }
    assert prove(key_map, headers(there), layers("")).holds
    assert [rule.source for rule in source.unused(there)] == ["ema."]


def test_what_upstream_skips_is_cited_or_in_conflict(headers: Make) -> None:
    keys = layers("m.") | {"m.head.weight": (9, 8), "tower.a.w": (1,)}
    source = source_of(
        SourceRule("skip", "prefix", "m.head.", None, None, "vllm_omni/x.py", 21),
        SourceRule("skip", "suffix", "a.w", None, None, "vllm_omni/x.py", 22),
    )
    key_map = infer_key_map(headers(keys), layers(""), source=source, drop_reasons={"tower.": "sees"})
    reasons = {rule.source: rule.reason for rule in key_map.rules if rule.op == "drop"}
    assert reasons == {
        "m.head.": "skipped by upstream's loader (vllm_omni/x.py:21)",
        "tower.": "sees; skipped by upstream's loader (vllm_omni/x.py:22)",
    }
    needed = source_of(SourceRule("skip", "contains", ".norm.", None, None, "vllm_omni/x.py", 30))
    with pytest.raises(ScaffoldError, match=r"skips 'm\.layers\.0\.norm\.weight' \(vllm_omni/x\.py:30\)"):
        infer_key_map(headers(keys), layers(""), source=needed)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=5),
    st.integers(0, 2),
    st.sampled_from(["split", "join"]),
    st.integers(0, 4),
)
def test_lengths_add_up_along_any_axis(headers: Make, lengths: list[int], axis: int, op: str, off: int) -> None:
    whole = [7, 7, 7]
    whole[axis] = sum(lengths) + off
    parts = [[length if place == axis else 7 for place in range(3)] for length in lengths]
    names = tuple(f"p{i}" for i in range(len(lengths)))
    if op == "split":
        rule = Rule("w", None, "split", parts=names, axis=axis)
        keys, wanted = {"w": tuple(whole)}, {n: tuple(p) for n, p in zip(names, parts, strict=True)}
    else:
        rule = Rule(None, "w", "join", parts=names, axis=axis, sizes=tuple(lengths))
        keys, wanted = {n: tuple(p) for n, p in zip(names, parts, strict=True)}, {"w": tuple(whole)}
    proof = prove(KeyMap((rule,)), headers(keys), wanted)
    assert proof.holds is (off == 0)
    assert proof.passes("shapes") is (off == 0)
