"""The proof on the real names and shapes: it holds, and each way to break it is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaffold.checkpoint import CheckpointHeaders
from scaffold.remap import KeyMap, Proof, Rule, infer_key_map, prove

Make = Callable[..., CheckpointHeaders]
Shapes = dict[str, tuple[int, ...]]
LAYER = "language_model.model.layers.3."


@pytest.fixture(scope="module")
def key_map(real: CheckpointHeaders, parameters: Shapes) -> KeyMap:
    return infer_key_map(real, parameters)


def failed(proof: Proof) -> set[str]:
    checks = proof.to_json()["proof"]
    assert checks["engine"] is None
    assert checks["lora"] is None
    assert proof.holds is all(value is not False for value in checks.values())
    return {name for name, value in checks.items() if value is False}


def test_it_holds(key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes) -> None:
    proof = prove(key_map, real, parameters)
    assert proof.holds
    assert proof.offenders == ()
    data = proof.to_json()
    assert list(data) == ["schema", "counts", "rules", "proof", "entries"]
    assert data["schema"] == 1
    assert data["counts"] == {
        "checkpoint": 1223,
        "mapped": 796,
        "ignored": 427,
        "unexplained": 0,
        "parameters": 796,
        "unfilled": 0,
    }
    assert {"from": "language_model.model.", "to": "", "matches": 787} in data["rules"]
    assert {"from": "vit_model.", "to": None, "matches": 421} in data["rules"]
    assert len(data["entries"]) == 1223
    assert {
        "source": "vae2llm.weight",
        "target": "vae2llm.weight",
        "shape": [3584, 64],
        "dtype": "BF16",
        "op": "rename",
    } in data["entries"]


def test_every_key_survives_the_way_there_and_back(
    key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes
) -> None:
    there = {name: mapped.target for name, mapped in key_map.apply_all(real).targets.items()}
    assert set(there.values()) == set(parameters)
    assert {name: key_map.invert(target) for name, target in there.items()} == {name: name for name in there}


def test_a_key_removed(key_map: KeyMap, keys: Shapes, parameters: Shapes, headers: Make) -> None:
    proof = prove(key_map, headers({k: v for k, v in keys.items() if k != f"{LAYER}mlp.up_proj.weight"}), parameters)
    assert failed(proof) == {"fills"}
    assert proof.counts["unfilled"] == 1
    assert "'layers.3.mlp.up_proj.weight' of shape [18944, 3584]" in proof.offenders[0].message


def test_a_key_added(key_map: KeyMap, keys: Shapes, parameters: Shapes, headers: Make) -> None:
    proof = prove(key_map, headers(keys | {"language_model.model.layers.28.mlp.up_proj.weight": (2,)}), parameters)
    assert failed(proof) == {"covers"}
    assert proof.counts["unexplained"] == 1
    assert "'layers.28.mlp.up_proj.weight', which is no parameter" in proof.offenders[0].message
    proof = prove(key_map, headers(keys | {"new.weight": (2,)}), parameters)
    assert failed(proof) == {"covers"}
    assert "no rule matches the checkpoint key 'new.weight'" in proof.offenders[0].message


def test_a_key_renamed(key_map: KeyMap, keys: Shapes, parameters: Shapes, headers: Make) -> None:
    altered = {k.replace(f"{LAYER}mlp.up_proj", f"{LAYER}mlp.up_projection"): v for k, v in keys.items()}
    proof = prove(key_map, headers(altered), parameters)
    assert failed(proof) == {"covers", "fills"}
    by_check = {offender.check: offender for offender in proof.offenders}
    assert by_check["fills"].suggestion == f"{LAYER}mlp.up_projection.weight"
    assert by_check["covers"].suggestion == "layers.3.mlp.up_proj.weight"


def test_a_key_reshaped(key_map: KeyMap, keys: Shapes, parameters: Shapes, headers: Make) -> None:
    proof = prove(key_map, headers(keys | {f"{LAYER}mlp.up_proj.weight": (3584, 18944)}), parameters)
    assert failed(proof) == {"shapes"}
    assert "has shape [3584, 18944], its parameter 'layers.3.mlp.up_proj.weight' [18944, 3584]" in (
        proof.offenders[0].message
    )


def test_two_targets_exchanged(key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes) -> None:
    swap = {"vae2llm.": "llm2vae.", "llm2vae.": "vae2llm."}
    rules = tuple(Rule(rule.source, swap[rule.source]) if rule.source in swap else rule for rule in key_map.rules)
    assert failed(prove(KeyMap(rules), real, parameters)) == {"shapes", "invertible"}


def test_two_rules_swapped(real: CheckpointHeaders, parameters: Shapes) -> None:
    rest = infer_key_map(real, parameters).rules
    special = Rule("language_model.model.norm.", "norm.")
    good = KeyMap((special, *rest))
    assert prove(good, real, parameters).holds
    swapped = KeyMap((*rest, special))
    proof = prove(swapped, real, parameters)
    assert failed(proof) == {"no_dead_rule"}
    assert "'language_model.model.norm.' matches no key, or only keys that a rule before it takes" in (
        proof.offenders[0].message
    )
    wide = Rule("language_model.", None, "drop", "text")
    assert failed(prove(KeyMap((wide, *rest)), real, parameters)) == {"fills", "no_dead_rule"}
    assert failed(prove(KeyMap((*rest, wide)), real, parameters)) == {"no_dead_rule"}


def test_a_dead_rule(key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes) -> None:
    proof = prove(KeyMap((*key_map.rules, Rule("audio_model.", None, "drop", "sound"))), real, parameters)
    assert failed(proof) == {"no_dead_rule"}
    assert proof.offenders[0].name == "audio_model."


def test_a_target_twice(key_map: KeyMap, keys: Shapes, parameters: Shapes, headers: Make) -> None:
    proof = prove(key_map, headers(keys | {"language_model.model.vae2llm.weight": (3584, 64)}), parameters)
    assert failed(proof) == {"injective"}
    assert "both become 'vae2llm.weight'" in proof.offenders[0].message


def test_a_rule_missing(key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes) -> None:
    rules = tuple(rule for rule in key_map.rules if rule.source != "vae2llm.")
    proof = prove(KeyMap(rules), real, parameters)
    assert failed(proof) == {"covers", "fills"}
    assert {offender.suggestion for offender in proof.offenders} == {"vae2llm.weight", "vae2llm.bias"}


def test_many_offenders_take_no_time(parameters: Shapes, keys: Shapes, headers: Make) -> None:
    nothing = KeyMap((Rule("language_model.model.", "x."),))
    proof = prove(nothing, headers(keys), parameters)
    assert {"covers", "fills"} <= failed(proof)
    assert sum(offender.suggestion is not None for offender in proof.offenders) <= 20
