"""``update`` by a newer tool: what nobody changed follows its presets, what a person changed stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import NEW, PACKAGE, snapshot

from scaffold.lifecycle.merge_spec import merge_specs
from scaffold.spec import IntegrationSpec
from scaffold.spec.derived import digest, digests

SPEC = f"{PACKAGE}/scaffold.toml"
SCRIPT = "examples/flowgrpo_trainer/toy/run_toy_ocr_lora.sh"
VERSION = ("--vllm-omni", "0.27.0rc1")


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Return a function that changes a line of the presets, as a newer version of the tool would."""
    from scaffold.spec import preset as room

    folder = Path(shutil.copytree(room.presets_root(), tmp_path / "presets"))
    monkeypatch.setattr(room, "presets_root", lambda: folder)

    def change(old: str, new: str) -> None:
        edit(folder / f"{room.find_preset('', 'BagelPipeline').name}.toml", f"\n{old}\n", f"\n{new}\n")
        room.presets.cache_clear()

    room.presets.cache_clear()
    yield change  # type: ignore[misc]
    room.presets.cache_clear()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


@pytest.mark.upstream
def test_unchanged_package_follows_the_preset(
    preset: Callable[[str, str], None], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    scaffold_cli(*NEW, *VERSION, "--patch", "--out", out).success()
    preset("noise_level = 0.7", "noise_level = 0.6")
    printed = scaffold_cli("update", out).success()
    assert "this version of omni-scaffold changes recipe.noise_level\n" in printed
    assert "\nrecipe.noise_level 0.7 to 0.6 in README.md, run_toy_ocr_lora.sh, run_flowgrpo_toy.sh\n" in printed
    scaffold_cli(*NEW, *VERSION, "--patch", "--out", fresh).success()
    assert snapshot(out) == snapshot(fresh)
    assert "nothing to do" in scaffold_cli("update", out).success()


@pytest.mark.upstream
def test_a_persons_value_stays_and_the_others_follow(
    preset: Callable[[str, str], None], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    scaffold_cli(*NEW, *VERSION, "--patch", "--out", out).success()
    edit(out / SPEC, "noise_level = 0.7", "noise_level = 0.55")
    scaffold_cli("update", out, "--spec").success()
    preset("total_steps = 300", "total_steps = 200")
    scaffold_cli("update", out).success()
    script = (out / SCRIPT).read_text()
    assert "noise_level=0.55" in script
    assert "total_training_steps=200" in script


@pytest.mark.upstream
@pytest.mark.parametrize("rendered", [False, True])
def test_value_that_both_changed_is_a_conflict(
    preset: Callable[[str, str], None], scaffold_cli: Callable[..., Any], tmp_path: Path, rendered: bool
) -> None:
    out = tmp_path / "out"
    scaffold_cli(*NEW, *VERSION, "--patch", "--out", out).success()
    edit(out / SPEC, "noise_level = 0.7", "noise_level = 0.55")
    if rendered:
        scaffold_cli("update", out, "--spec").success()
    preset("noise_level = 0.7", "noise_level = 0.6")
    before = snapshot(out)
    line = scaffold_cli("update", out).refusal(4)
    assert "recipe.noise_level (here 0.55, in this version of omni-scaffold 0.6)" in line
    assert snapshot(out) == before
    assert "recipe.noise_level keeps your value" in scaffold_cli("update", out, "--force").success()
    assert "noise_level=0.55" in (out / SCRIPT).read_text()
    # Decided once: the next update does not ask again.
    assert "nothing to do" in scaffold_cli("update", out).success()


@pytest.mark.upstream
def test_drift_tells_nothing_of_a_newer_preset(
    preset: Callable[[str, str], None], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    scaffold_cli(*NEW, *VERSION, "--patch", "--out", out).success()
    drift = ("drift", "BagelPipeline", "--to", "0.30.0", "--package", out)
    before = scaffold_cli(*drift)
    preset("noise_level = 0.7", "noise_level = 0.6")
    after = scaffold_cli(*drift)
    assert (before.code, before.out) == (after.code, after.out)
    assert "is not affected" in before.out


BASE = IntegrationSpec(
    {"recipe": {"noise": 0.7, "steps": 15}, "lora": {"rank": 64}},
    {"recipe.noise": "preset toy", "recipe.steps": "flag --steps", "lora.rank": "checkpoint headers"},
)
MADE = replace(BASE, derived=digests(BASE.sections))


def with_value(spec: IntegrationSpec, name: str, value: object) -> IntegrationSpec:
    section, _, key = name.partition(".")
    return replace(spec, sections={**spec.sections, section: {**spec.sections[section], key: value}})


def test_flags_and_headers_are_not_replaced_by_what_is_made_without_them() -> None:
    other = with_value(with_value(BASE, "recipe.steps", 20), "lora.rank", 8)
    merged = merge_specs(MADE, other, other)
    assert merged.spec.sections == BASE.sections
    assert not merged.followed


def test_spec_of_an_older_tool_keeps_what_it_has() -> None:
    newer = with_value(BASE, "recipe.noise", 0.6)
    merged = merge_specs(BASE, newer, newer)
    assert merged.spec.value("recipe.noise") == 0.7
    # From now on it is known as a person's.
    assert merged.spec.derived["recipe.noise"] == digest(0.6)


def test_value_back_at_the_tools_own_follows_again() -> None:
    mine = with_value(MADE, "recipe.noise", 0.5)
    kept = merge_specs(mine, BASE, BASE).spec
    assert kept.value("recipe.noise") == 0.5
    back = with_value(kept, "recipe.noise", 0.7)
    newer = with_value(BASE, "recipe.noise", 0.6)
    assert merge_specs(back, newer, newer).spec.value("recipe.noise") == 0.6
