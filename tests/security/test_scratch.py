"""Temporary folders: gone after their block, and what a killed process has left goes with the next one's first."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scaffold import scratch
from scaffold.scratch import keep, scratch_folder, tidy

HOLDS = """
import sys
from pathlib import Path
from scaffold.scratch import scratch_folder
with scratch_folder("held", Path(sys.argv[1])) as folder:
    (folder / "inner").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_a_folder_is_gone_after_its_block_also_where_that_fails(tmp_path: Path) -> None:
    with suppress(KeyError), scratch_folder("one", tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(
    held: tuple[subprocess.Popen[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, folder = held
    monkeypatch.setattr(scratch, "_tidied", set())
    with scratch_folder("two", tmp_path):
        assert (folder / "inner").is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.is_dir()
    with scratch_folder("two", tmp_path):
        assert folder.is_dir(), "one look at a place is enough for a process"
    monkeypatch.setattr(scratch, "_tidied", set())
    with scratch_folder("two", tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]


def test_what_is_kept_and_what_nobody_of_ours_has_made_stays(tmp_path: Path) -> None:
    with scratch_folder("kept", tmp_path) as folder:
        keep(folder)
    others = tmp_path / f"{scratch.PREFIX}others"  # a folder that its owner shows to others is none of ours
    others.mkdir(mode=0o755)
    link, file = tmp_path / f"{scratch.PREFIX}link", tmp_path / f"{scratch.PREFIX}file"
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    link.symlink_to(target)
    file.touch()
    tidy(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([folder, others, link, file, target])


def test_without_locks_nothing_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    left = tmp_path / f"{scratch.PREFIX}left"
    left.mkdir(mode=0o700)
    monkeypatch.setattr(scratch.fcntl, "flock", none)
    tidy(tmp_path)
    assert left.is_dir()
    with scratch_folder("three", tmp_path) as folder:
        assert folder.is_dir()
    assert not folder.exists()
    monkeypatch.undo()
    tidy(tmp_path)
    assert not left.exists()
