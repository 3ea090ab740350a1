"""Ctrl-C: one line that says what was interrupted, what was written and how to go on; never a traceback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
NEW = ("new", "bagel", "--vllm-omni", "0.27.0rc1", "--patch", "--out")
# The child stops where it meets the event for the given time, says so, and waits for the signal.
CODE = """
import sys, time
wanted, part, left = {event!r}, {part!r}, {count!r}
def stop(event, args):
    global left
    if event == wanted and any(part in str(argument) for argument in args):
        left -= 1
        if left == 0:
            open({mark!r}, "x").close()
            time.sleep(60)
sys.addaudithook(stop)
from scaffold.cli import main
main()
"""


@pytest.fixture
def interrupted(tmp_path: Path) -> Callable[..., str]:
    """Return a function that sends SIGINT to a command at an event and returns its line."""

    def run(*arguments: object, event: str, part: str = "", count: int = 1) -> str:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        code = CODE.format(event=event, part=part, count=count, mark=str(mark))
        child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A runner in the background ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            while not mark.exists():
                assert child.poll() is None, child.communicate()
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            _, error = child.communicate(timeout=30)
        finally:
            child.kill()
        assert child.returncode == 130, error
        assert error.startswith("error: "), error
        assert len(error.splitlines()) == 1, error
        return error.removeprefix("error: ").rstrip("\n")

    return run


@pytest.fixture
def copied(reference: Path, tmp_path: Path) -> Path:
    """Return a copy of the golden output."""
    return Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))


def test_while_the_command_line_is_loaded(interrupted: Callable[..., str]) -> None:
    line = interrupted("--help", event="import", part="typer")
    assert line == "omni-scaffold was interrupted; nothing was written; run the command again"


@pytest.mark.upstream
def test_new_while_it_reads_and_renders(interrupted: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = interrupted(*NEW, out, event="subprocess.Popen", part="ruff")
    assert line == "`omni-scaffold new` was interrupted while rendering; nothing was written; run the command again"
    assert not out.exists()


@pytest.mark.upstream
def test_new_while_it_writes(
    interrupted: Callable[..., str], scaffold_cli: Callable[..., Any], tmp_path: Path, reference: Path, tree_of: Any
) -> None:
    out = tmp_path / "out"
    line = interrupted(*NEW, out, event="os.rename", count=6)
    assert line == "`omni-scaffold new` was interrupted while writing; nothing was written; run the command again"
    assert not out.exists()
    scaffold_cli(*NEW, out).success()
    assert tree_of(out) == tree_of(reference)


@pytest.mark.upstream
def test_update_after_it_wrote(interrupted: Callable[..., str], copied: Path) -> None:
    spec = copied / PACKAGE / "scaffold.toml"
    spec.write_text(spec.read_text().replace("\nshift = 3.0 ", "\nshift = 2.5 "))
    line = interrupted("update", copied, "--spec", event="open", part="osc001_unreadable_file")
    assert line == (
        "`omni-scaffold update` was interrupted while checking the result; 4 files are written; "
        f"next: run `omni-scaffold check {copied / PACKAGE}`"
    )
    assert "SCHEDULE_SHIFT = 2.5" in (copied / PACKAGE / "common.py").read_text()


def test_check(interrupted: Callable[..., str], copied: Path, tree_of: Any) -> None:
    before = tree_of(copied)
    line = interrupted("check", copied, event="open", part="common.py")
    assert line == "`omni-scaffold check` was interrupted while checking; nothing was written; run the command again"
    line = interrupted("check", copied, "--fix", event="open", part="bagel_model.py")
    assert "all fixes are written or none, see `git diff`; run the command again" in line
    assert tree_of(copied) == before


def test_verify(interrupted: Callable[..., str], copied: Path) -> None:
    require("torch")
    line = interrupted("verify", copied / PACKAGE, "--select", "forward", event="subprocess.Popen", part="host")
    assert line == (
        "`omni-scaffold verify` was interrupted while running the contracts; nothing was written; run the command again"
    )


def test_list_ends_with_its_processes() -> None:
    """Ctrl-C of a terminal reaches the processes too, which print nothing and are not waited for.

    Not the console script, which would show the table that it kept.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", "from scaffold.cli import main; main()", "list", "--vllm-omni", "0.27.0rc1"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    started = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    if not started.exists():
        child.kill()
        pytest.skip("this system does not tell a process's children")
    if len(os.sched_getaffinity(0)) > 1:
        while child.poll() is None and not started.read_text().split():
            time.sleep(0.005)
    os.killpg(child.pid, signal.SIGINT)
    out, error = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert error.splitlines() == [
        "error: `omni-scaffold list` was interrupted; nothing was written; run the command again"
    ]
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)
