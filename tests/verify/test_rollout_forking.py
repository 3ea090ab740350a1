"""Processes of one environment as forks of a server, around a stand-in of what the environment has to import."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.forking import forking
from scaffold.verify.rollout.process import run_process

START = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from scaffold.verify.rollout.engine_side import server
with open({count!r}, "a") as file:
    file.write("imported\\n")
{imports}
if sys.argv[2] == "--serve":
    server.serve(Path(sys.argv[1]))
else:
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
Ended = Callable[..., tuple[str | None, str]]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment of this interpreter, whose server has nothing to import; it counts its interpreters."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/start.py" "$@"\n')
    python.chmod(0o755)
    write_start(folder, 'server._import = lambda: print("noise of the imports")')
    return Environment(folder, "1.0")


def write_start(folder: Path, imports: str) -> None:
    root, count = str(Path(__file__).resolve().parents[2]), str(folder.parent / "count")
    (folder / "start.py").write_text(START.format(root=root, count=count, imports=imports))


@pytest.fixture
def ended(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Return a function that runs code in a process, and gives its problem and what it printed."""

    def run(code: str, **limits: float) -> tuple[str | None, str]:
        script, task, log = tmp_path / "task.py", tmp_path / "task.json", tmp_path / "log"
        script.write_text(code)
        task.write_text("{}")
        monkeypatch.setattr("scaffold.verify.rollout.process.BOOT", script)
        problem = run_process(environment, task, log, profile="main", **limits).problem  # type: ignore[arg-type]
        return problem, log.read_text()

    return run


def interpreters(tmp_path: Path) -> int:
    return len((tmp_path / "count").read_text().splitlines())


def test_imports_are_made_once(ended: Ended, tmp_path: Path) -> None:
    code = "import os; print(os.getpid())"
    with forking():
        pids = {ended(code)[1] for _ in range(3)}
        with forking():
            pids.add(ended(code)[1])
        pids.add(ended(code)[1])
    assert len(pids) == 5
    assert interpreters(tmp_path) == 1
    ended(code)
    assert interpreters(tmp_path) == 2  # outside, one of its own


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("code", "problem", "printed"),
    [
        ("import sys; print(sys.argv[1].rpartition('/')[2])", None, "task.json\n"),
        ("import atexit; atexit.register(print, 'over'); raise SystemExit", None, "over\n"),
        ("import sys; print('noise'); sys.exit(3)", "over with exit code 3; its last line: noise", None),
        ("raise SystemExit('no engine')", "over with exit code 1; its last line: no engine", None),
        ("raise ValueError('x')", "over with exit code 1; its last line: ValueError: x", None),
        (
            "import os; os.kill(os.getpid(), 9)",
            "killed by SIGKILL, perhaps out of memory; its last line: it printed nothing",
            None,
        ),
    ],
)
def test_a_fork_ends_as_a_process_of_its_own(
    ended: Ended, inside: bool, code: str, problem: str | None, printed: str | None
) -> None:
    with forking() if inside else contextlib.nullcontext():
        found, log = ended(code)
    assert found is None if problem is None else problem in str(found)
    assert printed is None or log == printed


def test_a_fork_has_the_variables_and_limits_of_its_own_run(
    ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, tempfile; print(os.environ.get('USER'), tempfile.gettempdir(), os.getcwd())"
    with forking():
        for name in ("one", "two"):
            monkeypatch.setenv("USER", name)
            assert ended(code)[1] == f"{name} {tmp_path} {tmp_path}\n"
        assert "stopped after 1 s; its last line: begun" in str(
            ended("import time; print('begun', flush=True); time.sleep(60)", seconds=0.6)[0]
        )
        assert ended("print('on')") == (None, "on\n")
    assert interpreters(tmp_path) == 1


def test_nothing_is_left_behind(ended: Ended, tmp_path: Path) -> None:
    left = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\n    time.sleep(60)"
    )
    with forking():
        ended(left + "\ntime.sleep(0.5)")
        pid = int((tmp_path / "log").read_text())
    for _ in range(50):
        if not alive(pid):
            break
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for somebody to ask how."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_server_that_cannot_import_is_done_without(environment: Environment, ended: Ended, tmp_path: Path) -> None:
    write_start(environment.folder, "if sys.argv[2] == '--serve': raise ImportError('no engine')")
    with forking():
        assert [ended("print('by itself')") for _ in range(2)] == [(None, "by itself\n")] * 2
    assert interpreters(tmp_path) == 3  # one server, which is not tried again


def test_a_server_that_died_is_started_again(ended: Ended, tmp_path: Path) -> None:
    with forking():
        parent = int(ended("import os; print(os.getppid())")[1])
        os.kill(parent, signal.SIGKILL)
        time.sleep(0.2)
        assert ended("print('well')") == (None, "well\n")
        assert ended("print('well')") == (None, "well\n")
    assert interpreters(tmp_path) <= 3
