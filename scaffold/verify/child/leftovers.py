"""Kills all descendants of a process, even those that left its process group or lost their parent."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

from scaffold.files.reading import read_bytes

PASSES = 20


def adopt_orphans() -> None:
    """Linux: become the parent of all orphaned descendants, in any session."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1)


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process but not the process itself; Linux only."""
    for _ in range(PASSES):
        below = _below(pid)
        if not below:
            return
        for one in below:
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)
        if pid == os.getpid():
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _below(pid: int) -> list[int]:
    """Processes below one that have not ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = read_bytes(folder / "stat").rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        waiting += (below := children.get(waiting.pop(), []))
        found += below
    return found


def die_with_parent() -> None:
    """Linux: have this process killed when its parent ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
