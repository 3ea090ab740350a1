"""A saved spec is all that rendering needs."""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SPEC = "verl_omni/pipelines/bagel_flow_grpo/scaffold.toml"
NOWHERE = {
    "PATH": "/nonexistent",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_NO_INDEX": "1",
    "HF_HUB_OFFLINE": "1",
}
# No upstream source, no checkpoint, no pip: whoever asks for one of them fails loudly.
SEALED = """
import sys, subprocess, scaffold.upstream, scaffold.upstream.fetch, scaffold.inspect, scaffold.checkpoint
def sealed(*arguments, **options):
    raise SystemExit(f"asked for {arguments}")
scaffold.upstream.locate = scaffold.inspect.inspect_pipeline = scaffold.checkpoint.read_checkpoint = sealed
scaffold.upstream.fetch.fetch_wheel = scaffold.checkpoint.read_manifest = sealed
from scaffold.cli import main
main()
"""


def test_spec_renders_the_same_tree_without_vllm_omni(
    scaffold_child: Callable[..., Any], reference: Path, tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    cache = tmp_path / "cache"
    out = tmp_path / "out"
    scaffold_child(
        *("new", "bagel", "--spec", reference / SPEC, "--patch", "--out", out),
        code=SEALED,
        OMNI_SCAFFOLD_CACHE=str(cache),
        **NOWHERE,
    ).success()
    assert not cache.exists()
    expected, actual = tree_of(reference), tree_of(out)
    assert sorted(actual) == sorted(expected)
    for path in expected:
        assert actual[path] == expected[path], path


@pytest.mark.upstream
@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_spec_of_each_release_renders_its_tree(
    scaffold_cli: Callable[..., Any],
    release_trees: dict[str, Path],
    tmp_path: Path,
    tree_of: Callable[[Path], Any],
    release: str,
) -> None:
    tree = release_trees[release]
    scaffold_cli("new", "bagel", "--spec", tree / SPEC, "--patch", "--out", tmp_path / "out").success()
    assert tree_of(tmp_path / "out") == tree_of(tree)


def test_spec_in_place_changes_nothing(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(reference, out, symlinks=True)
    assert "nothing to do" in scaffold_cli("new", "bagel", "--spec", out / SPEC, "--patch", "--out", out).success()
    assert tree_of(out) == tree_of(reference)


def test_edited_spec_is_what_is_rendered(scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path) -> None:
    text = (reference / SPEC).read_text(encoding="utf-8")
    edited = tmp_path / "edited.toml"
    shutil.copy((reference / SPEC).with_name("scaffold.lock.toml"), tmp_path)
    text = text.replace("\nshift = 3.0 ", "\nshift = 1.75 ").replace("noise_level = 0.7", "noise_level = 0.55")
    edited.write_text(text.replace('display = "BAGEL-7B-MoT"', 'display = "Sesame"'), encoding="utf-8")
    out = tmp_path / "out"
    scaffold_cli("new", "bagel", "--spec", edited, "--patch", "--out", out).success()
    assert "SCHEDULE_SHIFT = 1.75\n" in (out / "verl_omni/pipelines/bagel_flow_grpo/common.py").read_text()
    assert "noise_level=0.55" in (out / "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh").read_text()
    readme = (out / "examples/flowgrpo_trainer/bagel/README.md").read_text()
    assert readme.startswith("# Sesame FlowGRPO training\n")
    assert "BAGEL-7B" not in readme.replace("ByteDance-Seed/BAGEL-7B-MoT", "")


def test_hostile_strings_of_a_spec_stay_text(scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    display = f'x\\"\\"\\" {{{{ 7 * 7 }}}} {{% raw %}} $(touch {evil}) `touch {evil}` \\\\ \\n import os'
    text = (reference / SPEC).read_text(encoding="utf-8")
    edited = tmp_path / "edited.toml"
    shutil.copy((reference / SPEC).with_name("scaffold.lock.toml"), tmp_path)
    edited.write_text(text.replace('display = "BAGEL-7B-MoT"', f'display = "{display}"'), encoding="utf-8")
    out = tmp_path / "out"
    outcome = scaffold_cli("new", "bagel", "--spec", edited, "--patch", "--out", out)
    if outcome.code:
        outcome.refusal()
        assert not out.exists()
        return
    assert compileall.compile_dir(out, quiet=1, force=True)
    for path in out.rglob("*.sh"):
        text = path.read_text()
        for word in re.findall(r"^(?:echo|python3 -) ('(?:[^']|'\\'')*')", text, re.MULTILINE):
            subprocess.run(["bash", "-c", f"set -- {word}; [ $# = 1 ]"], check=True, capture_output=True)
            text = text.replace(word, "")
        assert not [line for line in text.splitlines() if str(evil) in line and not line.startswith("#")], path.name
    assert not evil.exists()
