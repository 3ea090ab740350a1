"""What tests share gives what the tool and Python give by themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shared_answers import SharedAnswers

import scaffold.grade
import scaffold.inspect
from scaffold.inspect import engine
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import DEFAULT_VERSION, locate


@pytest.mark.upstream
def test_an_answer_is_made_once_and_each_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline")
    again = scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline")
    assert (again, again is first) == (first, False)
    assert repr(again) == repr(scaffold.inspect._inspect.__wrapped__(locate(DEFAULT_VERSION), "BagelPipeline", None))
    request = SpecRequest(first, derive_names("bagel"), default_profile())
    specs = [scaffold.grade.specify(request, locate(DEFAULT_VERSION)) for _ in range(2)]
    assert specs[0] == specs[1] == scaffold.grade.specify.__wrapped__(request, locate(DEFAULT_VERSION))
    assert specs[0] is not specs[1]
    # Who has patched something is told what the tool says now.
    monkeypatch.setattr(engine, "answer_all", lambda program: "another")
    assert scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline") == "another"


def test_a_tree_is_rendered_once(tmp_path: Path, tree_of: Callable[[Path], Any]) -> None:
    shared = SharedAnswers.__new__(SharedAnswers)  # without putting itself in place of the tool's functions again
    shared._folder = tmp_path

    def render() -> None:
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/file").write_text("text")
        (tmp_path / "a/link").symlink_to("b/file")

    with shared.during(SimpleNamespace(fixturenames=())):
        shared.lay_out(("new",), tmp_path / "a", render)
        shared.lay_out(("new",), tmp_path / "again", lambda: pytest.fail("rendered again"))
    assert tree_of(tmp_path / "again") == tree_of(tmp_path / "a") != {}


def test_a_warm_program_is_one_of_its_own(warm_python: Callable[..., Any], tmp_path: Path) -> None:
    code = "import os, sys, torch; print(os.getcwd(), sys.argv, os.environ['MINE']); sys.exit(3)"
    done = warm_python(["-c", code, "given"], cwd=tmp_path, env={**os.environ, "MINE": "yes"})
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"{tmp_path.resolve()} ['-c', 'given'] yes\n"
    (tmp_path / "here.py").write_text("import beside; raise ValueError(__name__ + beside.NAME)\n")
    (tmp_path / "beside.py").write_text("NAME = ' and beside'\n")
    for command in (["-m", "here"], [tmp_path / "here.py"]):
        done = warm_python(command, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.endswith("ValueError: __main__ and beside\n")
    assert warm_python(["-c", "import os; os.kill(os.getpid(), 9)"]).returncode == -9
    with pytest.raises(subprocess.TimeoutExpired):
        warm_python(["-c", "import time; time.sleep(1000)"], timeout=2.0)
