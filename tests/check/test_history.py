"""Bugs that verl-omni's history fixed: found in the commit before the fix, silent in the fix.

Needs a repository with the history, named by ``VERL_OMNI_HISTORY`` or ``VERL_OMNI_SRC``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check import check_paths
from scaffold.check.catalogue import all_rules
from scaffold.check.settings import Settings

HISTORY = Path(__file__).with_name("history")
_SPEC = importlib.util.spec_from_file_location("history_page", HISTORY / "page.py")
assert _SPEC is not None
assert _SPEC.loader is not None
history_page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(history_page)
BUGS: list[dict[str, Any]] = history_page.bugs()
TOLD = [bug for bug in BUGS if bug["decides"] == "rule"]
# What rules look at; the rest of the tree is not exported.
PARTS = ("verl_omni", "examples", "tests", "docs", "pyproject.toml")


def _repository() -> str:
    source = os.environ.get("VERL_OMNI_HISTORY") or os.environ.get("VERL_OMNI_SRC")
    if not source:
        pytest.skip("neither VERL_OMNI_HISTORY nor VERL_OMNI_SRC names a repository of verl-omni")
    return source


def _export(repository: str, commit: str, to: Path) -> Path:
    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", "-C", repository, *words], capture_output=True, check=False)

    if git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
        pytest.skip(f"{repository} has no commit {commit}")
    parts = [part for part in PARTS if git("cat-file", "-e", f"{commit}:{part}").returncode == 0]
    archive = git("archive", "--format=tar", commit, *parts)
    assert archive.returncode == 0, archive.stderr.decode()
    to.mkdir()
    subprocess.run(["tar", "-x", "-C", str(to)], input=archive.stdout, check=True)
    return to


def _found(tree: Path, bug: dict[str, Any]) -> list[str]:
    report = check_paths([tree], select=[bug["who"]], settings=Settings())
    return [f.message for f in report.findings if f.key == bug["path"]]


@pytest.mark.parametrize("bug", TOLD, ids=lambda bug: f"{bug['fix'][:8]}-{bug['who']}")
def test_found_before_the_fix_and_silent_after_it(bug: dict[str, Any], tmp_path: Path) -> None:
    repository = _repository()
    before = _found(_export(repository, bug["parent"], tmp_path / "parent"), bug)
    assert before
    # A fix may be wrong in another way: what was said of the parent is said no more.
    after = _found(_export(repository, bug["fix"], tmp_path / "fix"), bug)
    assert not set(before) & set(after), after


def test_parents_are_the_commits_before() -> None:
    fixes = [bug["fix"] for bug in BUGS]
    command = ["git", "-C", _repository(), "log", "--no-walk", "--ignore-missing", "--format=%H %P", *fixes]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    before = {commit: parents for commit, _, parents in (line.partition(" ") for line in lines)}
    found = [bug for bug in BUGS for commit in before if commit.startswith(bug["fix"])]
    if not found:
        pytest.skip("none of the fixes is here")
    for bug in found:
        (parents,) = [parents for commit, parents in before.items() if commit.startswith(bug["fix"])]
        assert parents.startswith(bug["parent"]), bug["fix"]


def test_page_is_current() -> None:
    text = history_page.PAGE.read_text(encoding="utf-8")
    assert text == history_page.page(), "run `python tests/check/history/page.py`"


def test_rows_name_what_there_is(is_measured: Callable[[str], bool]) -> None:
    rules = {rule.id for rule in all_rules()}
    for bug in BUGS:
        if bug["decides"] == "rule":
            assert bug["who"] in rules
            assert bug["before"] in ("found", "silent")
        elif bug["decides"] == "contract":
            assert is_measured(bug["who"])
            assert bug["why"]
        else:
            assert bug["decides"] == "neither"
            assert bug["why"]
