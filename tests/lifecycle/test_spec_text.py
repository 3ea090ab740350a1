"""``scaffold.toml`` is the user's: comments, order and formatting survive every command that writes it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import PACKAGE, snapshot

from scaffold.spec import LOCK_NAME, SPEC_NAME, IntegrationSpec, read_spec
from scaffold.spec.rewrite import rewrite

SPEC = f"{PACKAGE}/scaffold.toml"
COMMENTED = """# Ours, ask Ada.
schema = 2

[schedule] # the recipe
shift = 3.0  # as published
steps = 'n'

[lora]
targets = [
    "q_proj",  # first
    "k_proj",
    # the last one
    "v_proj",
]

[cfg.defaults]
scale = 4.0  # text
# the other
interval = [0.0, 1.0]

[[checkpoint.fixed_config]]
path = "a"  # one

[[checkpoint.fixed_config]]
# the second
path = "b"
"""
LOCK = IntegrationSpec({"tool": {"version": "0"}}).to_lock()


def changed(text: str, lock: str, section: str, key: str, value: object) -> tuple[IntegrationSpec, str]:
    spec = IntegrationSpec.from_toml(text, lock=lock)
    sections = {name: dict(values) for name, values in spec.sections.items()}
    sections[section][key] = value
    spec = replace(spec, sections=sections)
    written = rewrite(text, spec, IntegrationSpec.from_toml(text, lock=lock))
    assert written is not None
    return spec, written


@pytest.mark.parametrize(
    ("section", "key", "value", "old", "new"),
    [
        ("schedule", "shift", 2.0, "shift = 3.0  # as", "shift = 2.0  # as"),
        ("schedule", "steps", "n", "", ""),
        ("lora", "targets", ["q_proj", "v_proj"], '    "k_proj",\n', ""),
        ("lora", "targets", ["q_proj", "k_proj", "w"], '"v_proj"', '"w"'),
        ("cfg", "defaults", {"scale": 5.0, "interval": [0.0, 1.0]}, "scale = 4.0", "scale = 5.0"),
        ("cfg", "defaults", {"interval": [0.0, 1.0]}, "scale = 4.0  # text\n", ""),
        ("checkpoint", "fixed_config", [{"path": "c"}, {"path": "b"}], 'path = "a"', 'path = "c"'),
        (
            "checkpoint",
            "fixed_config",
            [{"path": "b"}],
            '[[checkpoint.fixed_config]]\npath = "a"  # one\n\n',
            "",
        ),
    ],
)
def test_only_the_value_changes(section: str, key: str, value: object, old: str, new: str) -> None:
    spec, written = changed(COMMENTED, LOCK, section, key, value)
    assert IntegrationSpec.from_toml(written, lock=LOCK).sections == spec.sections
    assert written == COMMENTED.replace(old, new, 1)


def test_new_keys_and_sections_are_added_and_old_ones_go() -> None:
    spec = IntegrationSpec.from_toml(COMMENTED, lock=LOCK)
    sections = {
        "schedule": {"shift": 3.0, "solver": "Euler"},
        "deploy": {"engine": {"a": 1}},
        "cfg": spec.sections["cfg"],
        "checkpoint": spec.sections["checkpoint"],
        "tool": spec.sections["tool"],
    }
    written = rewrite(COMMENTED, replace(spec, sections=sections), spec)
    assert written is not None
    assert IntegrationSpec.from_toml(written, lock=LOCK).sections == sections
    for comment in ("# Ours, ask Ada.", "# the recipe", "# as published", "# text", "# the other"):
        assert comment in written
    assert rewrite(written, replace(spec, sections=sections), replace(spec, sections=sections)) == written


def test_text_without_comments_is_what_the_tool_writes(reference_spec: IntegrationSpec) -> None:
    text = reference_spec.to_toml()
    spec, written = changed(text, reference_spec.to_lock(), "schedule", "shift", 1.25)
    assert written == text.replace("shift = 3.0", "shift = 1.25")
    assert IntegrationSpec.from_toml(written, lock=spec.to_lock()).sections == spec.sections


@pytest.fixture
def out(output: Callable[..., Path], tmp_path: Path) -> Path:
    """Return a package whose ``scaffold.toml`` a person has commented."""
    root = Path(shutil.copytree(output("0.22.0"), tmp_path / "out", symlinks=True))
    spec = root / SPEC
    text = spec.read_text()
    for old, new in (
        ("schema = 2\n", "# Owner: Ada.\nschema = 2\n"),
        ("noise_level = 0.7  # noise of", "noise_level = 0.7  # do not touch: noise of"),
        ("[lora]\n", "# Ranks below 64 did not learn.\n[lora]\n"),
        ('    "q_proj_moe_gen",\n', '    "q_proj_moe_gen",  # first\n'),
        ('[names]\npackage = "toy_flow_grpo"', "[names]\nmodel = 'toy'\npackage = 'toy_flow_grpo'"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    spec.write_text(text)
    return root


MINE = (
    "# Owner: Ada.\nschema = 2\n",
    "noise_level = 0.7  # do not touch: noise of",
    "# Ranks below 64 did not learn.\n[lora]\n",
    '    "q_proj_moe_gen",  # first\n',
    "package = 'toy_flow_grpo'",
)


@pytest.mark.upstream
def test_comments_survive_an_update(out: Path, output: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    text = (out / SPEC).read_text()
    for mine in MINE:
        assert mine in text, mine
    fresh = output("0.30.0")
    assert read_spec(out / SPEC).spec == read_spec(fresh / SPEC).spec
    both = (SPEC, SPEC.replace(SPEC_NAME, LOCK_NAME))  # the lock has the digest of a file in the person's order
    assert {k: v for k, v in snapshot(out).items() if k not in both} == {
        k: v for k, v in snapshot(fresh).items() if k not in both
    }
    again = snapshot(out)
    assert "nothing to do" in scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert snapshot(out) == again


@pytest.mark.upstream
def test_comments_survive_update_spec(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    spec = out / SPEC
    spec.write_text(spec.read_text().replace("\nshift = 3.0 ", "\nshift = 1.75 "))
    scaffold_cli("update", out, "--spec").success()
    text = spec.read_text()
    for mine in (*MINE, "\nshift = 1.75  # time"):
        assert mine in text, mine
    assert "SCHEDULE_SHIFT = 1.75\n" in (out / PACKAGE / "common.py").read_text()


@pytest.mark.upstream
def test_commented_spec_counts_as_edited(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert f"rendered: {SPEC};" in scaffold_cli("remove", out).refusal(4)
    assert "# Owner: Ada." in (out / SPEC).read_text()


def test_lists_that_stand_apart_are_not_touched() -> None:
    """The library cannot change a list of tables of which one stands elsewhere; no comment is lost in silence."""
    entry = '\n[[checkpoint.fixed_config]]\n# the second\npath = "b"\n'
    assert entry in COMMENTED
    apart = COMMENTED.replace(entry, "").replace("\n[lora]\n", f"{entry}\n[lora]\n")
    spec = IntegrationSpec.from_toml(COMMENTED, lock=LOCK)
    assert rewrite(apart, spec, spec) is None


@pytest.mark.upstream
def test_comments_that_cannot_be_kept_are_a_conflict(
    out: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["scaffold.lifecycle.update"], "rewrite", lambda *_: None)
    before = snapshot(out)
    line = scaffold_cli("update", out, "--vllm-omni", "0.30.0").refusal(4)
    assert "without losing your comments" in line
    assert snapshot(out) == before
    scaffold_cli("update", out, "--vllm-omni", "0.30.0", "--force").success()
    assert "# Owner: Ada." not in (out / SPEC).read_text()
