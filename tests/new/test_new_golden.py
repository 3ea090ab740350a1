"""The default output is the golden folder, wherever, whenever and by whomever it is rendered."""

from __future__ import annotations

import datetime
import getpass
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import PACKAGE_ROOT

pytestmark = pytest.mark.upstream


def test_output_is_the_golden_folder(default_tree: Path, reference: Path, tree_of: Callable[[Path], Any]) -> None:
    expected, actual = tree_of(reference), tree_of(default_tree)
    assert sorted(actual) == sorted(expected)
    for path in expected:
        assert actual[path] == expected[path], path


def test_pipeline_class_stands_for_a_model_of_its_name(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    scaffold_cli("new", "BagelPipeline", "--vllm-omni", "0.27.0rc1", "--patch", "--out", tmp_path / "out").success()
    assert tree_of(tmp_path / "out") == tree_of(reference)


def test_golden_folder_has_every_kind_of_entry(reference: Path, tree_of: Callable[[Path], Any]) -> None:
    kinds = {(kind, executable) for kind, executable, _ in tree_of(reference).values()}
    assert kinds == {("link", False), ("file", False), ("file", True)}


@pytest.mark.parametrize("seed", ["1", "4242"])
def test_same_in_another_environment(
    scaffold_child: Callable[..., Any],
    default_tree: Path,
    tmp_path: Path,
    tree_of: Callable[[Path], Any],
    seed: str,
) -> None:
    home = tmp_path / "home of zq_somebody"
    home.mkdir()
    out = tmp_path / "another place" / "out"
    scaffold_child(
        *("new", "bagel", "--vllm-omni", "0.27.0rc1", "--patch", "--out", out),
        cwd=home,
        umask=0o077,
        PYTHONHASHSEED=seed,
        TZ="Pacific/Kiritimati",
        HOME=str(home),
        USER="zq_somebody",
        LOGNAME="zq_somebody",
        LC_ALL="C",
        COLUMNS="40",
        OMNI_SCAFFOLD_CACHE=str(_cache()),
    ).success()
    assert tree_of(out) == tree_of(default_tree)


def test_relative_folder_and_working_directory(
    scaffold_child: Callable[..., Any], default_tree: Path, tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    cache = str(_cache())
    scaffold_child("new", "bagel", "--patch", "--out", "out", cwd=tmp_path, OMNI_SCAFFOLD_CACHE=cache).success()
    assert tree_of(tmp_path / "out") == tree_of(default_tree)


def test_default_version_is_the_golden_one(
    rendered: Callable[..., Path], default_tree: Path, tree_of: Callable[[Path], Any]
) -> None:
    assert tree_of(rendered("bagel", "--profile", "main")) == tree_of(default_tree)


def test_nothing_of_this_machine_is_in_it(default_tree: Path, tree_of: Callable[[Path], Any]) -> None:
    text = "\n".join(content.decode() for _, _, content in tree_of(default_tree).values())
    places = {str(default_tree), str(PACKAGE_ROOT), str(PACKAGE_ROOT.parent), str(Path.home()), str(_cache())}
    places |= {sys.prefix, tempfile.gettempdir() + "/pytest"}
    for place in places - {"/"}:
        assert not re.search(re.escape(place) + r"(/|\b)", text), place
    for name in (getpass.getuser(), socket.gethostname()):
        if len(name) > 5:
            assert name not in text
    today = datetime.date.today()
    written = {today.isoformat(), today.strftime("%m/%d/%Y"), today.strftime("%d.%m.%Y")} - {"08/22/2026"}
    assert not [date for date in written if date in text]
    plain = text.replace("#!/usr/bin/env bash", "")
    assert not re.search(r"(?<![\w$.~}\"'])/(home|root|work|tmp|usr|Users)/", plain)


def test_second_run_changes_nothing_and_says_so(
    scaffold_cli: Callable[..., Any], tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    out = tmp_path / "out"
    first = scaffold_cli("new", "bagel", "--patch", "--out", out).success()
    assert re.search(r"wrote \d+ files", first)
    before = tree_of(out)
    stamps = {path: path.lstat().st_mtime_ns for path in out.rglob("*")}
    second = scaffold_cli("new", "bagel", "--patch", "--out", out).success()
    assert "nothing to do" in second
    assert "wrote" not in second
    assert tree_of(out) == before
    assert {path: path.lstat().st_mtime_ns for path in out.rglob("*")} == stamps


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_nothing_is_written_when_only_shown(
    scaffold_cli: Callable[..., Any], tmp_path: Path, default_tree: Path, option: str
) -> None:
    printed = scaffold_cli("new", "bagel", "--patch", "--out", tmp_path / "out", option).success()
    assert not list(tmp_path.iterdir())
    for path in default_tree.rglob("*.py"):
        assert path.name in printed


def test_another_date_changes_the_documentation_only(rendered: Callable[..., Path], default_tree: Path) -> None:
    other = rendered("bagel", "--vllm-omni", "0.27.0rc1", "--date", "01/02/2031")
    paths = {p.relative_to(other).as_posix() for p in other.rglob("*") if p.is_file() and not p.is_symlink()}
    changed = {path for path in paths if (other / path).read_bytes() != (default_tree / path).read_bytes()}
    assert changed == {
        "examples/flowgrpo_trainer/bagel/README.md",
        "verl_omni/pipelines/bagel_flow_grpo/scaffold.lock.toml",
    }
    assert "Last updated: 01/02/2031" in (other / "examples/flowgrpo_trainer/bagel/README.md").read_text()


def _cache() -> Path:
    from scaffold.upstream import cache_root

    return cache_root().resolve()
