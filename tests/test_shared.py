"""What tests share gives what the tool and Python give by themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scaffold.inspect
from scaffold.inspect import engine
from scaffold.upstream import DEFAULT_VERSION, locate


@pytest.mark.upstream
def test_an_answer_is_made_once_and_each_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline")
    again = scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline")
    assert (again, again is first) == (first, False)
    assert repr(again) == repr(scaffold.inspect.inspect_pipeline.__wrapped__(locate(DEFAULT_VERSION), "BagelPipeline"))
    # Who has patched something is told what the tool says now.
    monkeypatch.setattr(engine, "answer_all", lambda program: "another")
    assert scaffold.inspect.inspect_pipeline(locate(DEFAULT_VERSION), "BagelPipeline") == "another"


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
