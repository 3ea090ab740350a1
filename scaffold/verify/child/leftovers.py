"""Ends every process that a run has started, also those that left its process group or lost their parent."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaffold.reading import read_bytes

# Inherited by everything that a run starts; its value is the run's own.
MARK = "OMNI_SCAFFOLD_RUN"
PASSES = 20


def end_process(process: Any, token: str, folder: Path | None = None) -> None:
    """End a process that leads a group of its own, with the group, wait for it, then end the run's leftovers."""
    end_descendants(process.pid)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end_leftovers(token, folder)


def end_leftovers(token: str, folder: Path | None = None) -> None:
    """Kill the processes that carry ``token`` in their environment, or have a file of ``folder`` open.

    The second finds those that wrote a title over their environment, as Ray's do.

    Linux only: elsewhere no process can be found by what it inherited, and only process groups are ended.
    """
    # One that forks while it is looked for is found by the next pass.
    for _ in range(PASSES):
        found = {*_carrying(f"{MARK}={token}".encode()), *(() if folder is None else _using(folder))}
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _carrying(entry: bytes) -> list[int]:
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        # The memory of a process that has ended and waits to be reaped is gone, so it is not found again.
        with suppress(OSError):
            if entry in read_bytes(folder / "environ").split(b"\0") and int(folder.name) != os.getpid():
                pids.append(int(folder.name))
    return pids


def _using(folder: Path) -> list[int]:
    inside = str(folder) + os.sep
    pids = []
    for place in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            opened = (os.readlink(link) for link in place.iterdir())  # noqa: PTH115  # what it names may be gone
            if int(place.parent.name) != os.getpid() and any(name.startswith(inside) for name in opened):
                pids.append(int(place.parent.name))
    return pids


def readable_by_others(yes: bool) -> None:
    """Linux: whether other processes of the user may look into this one's memory and descriptors."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, int(yes))


def adopt_orphans() -> None:
    """Linux: become the parent of whatever this process's descendants leave behind, in whichever session."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1)


def end_descendants(pid: int) -> None:
    """Kill everything below a process, which itself goes on; Linux only."""
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
    """Linux: be ended when the parent ends, however it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
