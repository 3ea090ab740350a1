"""The proof on the real names and shapes where rules are wrong; checkpoints that do not fit are the command's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaffold.checkpoint import CheckpointHeaders
from scaffold.remap import KeyMap, Proof, Rule, infer_key_map, prove

Make = Callable[..., CheckpointHeaders]
Shapes = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def key_map(real: CheckpointHeaders, parameters: Shapes) -> KeyMap:
    return infer_key_map(real, parameters)


def failed(proof: Proof) -> set[str]:
    checks = proof.to_json()["proof"]
    assert checks["engine"] is None
    assert checks["lora"] is None
    assert proof.holds is all(value is not False for value in checks.values())
    return {name for name, value in checks.items() if value is False}


def test_every_key_survives_the_way_there_and_back(
    key_map: KeyMap, real: CheckpointHeaders, parameters: Shapes
) -> None:
    there = {name: mapped.target for name, mapped in key_map.apply_all(real).targets.items()}
    assert set(there.values()) == set(parameters)
    assert {name: key_map.invert(target) for name, target in there.items()} == {name: name for name in there}


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
