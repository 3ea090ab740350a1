"""Carrying what changed upstream over to a recorded spec."""

from __future__ import annotations

from dataclasses import replace

from scaffold.lifecycle.merge_spec import changed_keys, merge_specs
from scaffold.spec import IntegrationSpec
from scaffold.spec.lock import is_sealed, seal

BASE = IntegrationSpec(
    {"schedule": {"shift": 3.0, "steps": "n"}, "tool": {"version": "1"}, "prompt": {"begin": None}},
    {"schedule.shift": "fact a, x.py:1", "schedule.steps": "preset toy"},
)


def with_value(spec: IntegrationSpec, section: str, key: str, value: object) -> IntegrationSpec:
    sections = {name: dict(values) for name, values in spec.sections.items()}
    sections.setdefault(section, {})[key] = value
    return replace(spec, sections=sections)


def test_what_changed_upstream_is_taken() -> None:
    new = with_value(BASE, "schedule", "shift", 2.0)
    merged = merge_specs(BASE, BASE, new)
    assert merged.spec.value("schedule.shift") == 2.0
    assert not merged.conflicts


def test_what_a_person_changed_stays() -> None:
    mine = with_value(BASE, "schedule", "steps", "n-1")
    new = with_value(BASE, "schedule", "shift", 2.0)
    merged = merge_specs(mine, BASE, new)
    assert merged.spec.sections["schedule"] == {"shift": 2.0, "steps": "n-1"}
    assert not merged.conflicts


def test_both_changed_is_a_conflict_unless_they_agree() -> None:
    mine, new = with_value(BASE, "schedule", "shift", 1.0), with_value(BASE, "schedule", "shift", 2.0)
    merged = merge_specs(mine, BASE, new)
    assert [str(conflict) for conflict in merged.conflicts] == ["schedule.shift (here 1.0, upstream from 3.0 to 2.0)"]
    assert not merge_specs(new, BASE, new).conflicts


def test_keys_come_and_go_with_the_tool() -> None:
    new = with_value(BASE, "schedule", "fresh", 1)
    assert merge_specs(BASE, BASE, new).spec.value("schedule.fresh") == 1
    without = replace(BASE, sections={name: v for name, v in BASE.sections.items() if name != "prompt"})
    assert "prompt" not in merge_specs(BASE, BASE, without).spec.sections


def test_the_tools_own_values_are_always_new() -> None:
    mine = with_value(BASE, "tool", "version", "0")
    assert merge_specs(mine, BASE, BASE).spec.value("tool.version") == "1"


def test_provenance_follows_the_value() -> None:
    new = replace(BASE, provenance={"schedule.shift": "fact a, x.py:9", "schedule.steps": "checkpoint headers"})
    old = replace(BASE, provenance={"schedule.shift": "fact a, x.py:1", "schedule.steps": "checkpoint headers"})
    merged = merge_specs(BASE, old, new).spec.provenance
    assert merged == {"schedule.shift": "fact a, x.py:9", "schedule.steps": "preset toy"}


def test_true_is_not_one() -> None:
    assert changed_keys(with_value(BASE, "a", "b", True), with_value(BASE, "a", "b", 1)) == ("a.b",)
    assert changed_keys(with_value(BASE, "a", "b", [1, None]), with_value(BASE, "a", "b", (1, None))) == ()


def test_seal_tells_every_edit() -> None:
    text = seal("schema = 1\nshift = 3.0\n")
    assert is_sealed(text)
    assert seal(text) == text
    assert not is_sealed(text.replace("3.0", "3.5"))
    assert not is_sealed(text + "# mine\n")
    assert not is_sealed("schema = 1\nshift = 3.0\n")
