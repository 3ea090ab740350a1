"""Fixtures for what a stranger may have prepared."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def never_hangs() -> Iterator[None]:
    """Fail a test that waits for a pipe which nobody writes into."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(900)  # however busy the machine is
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe() -> Callable[[Path], Path]:
    """Return a function that puts a named pipe at a path."""

    def make(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        return path

    return make


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs git in a folder, with no configuration of the user's."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for key in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(key, "me")

    def run(root: Path, *arguments: str, **options: Any) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    return run


@pytest.fixture
def repository(git: Callable[..., str], tmp_path: Path) -> Path:
    """Return a repository with two commits of ``a/text.txt`` and one of ``b.txt``."""
    root = tmp_path / "checkout"
    (root / "a").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "--template=", "--initial-branch=main", str(root))
    for text in ("one\n", "two\n"):
        (root / "a/text.txt").write_text(text)
        (root / "b.txt").write_text("b\n")
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", text.strip())
    return root
