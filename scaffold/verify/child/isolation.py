"""Runs one function in a forked process with limits, and reports in one line how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.files.documents import parse_json
from scaffold.files.reading import read_tail, read_text
from scaffold.limits.child_process import told_ending
from scaffold.verify.child.leftovers import die_with_parent

MAX_RESULT_BYTES = 4 << 20
MAX_FILE_BYTES = 256 << 20  # of a log, or of a tiny checkpoint; writing more fails
MOST_CROWDED = 20.0  # the largest factor on a time limit on a busy machine


@dataclass
class Forked:
    """A running process.

    Attributes:
        pid: its id, and that of its process group.
        reader: pipe on which its result comes.
        log: file that has its output.
    """

    pid: int
    reader: int
    started: float
    seconds: float
    log: Path
    received: bytes = b""
    timed_out: bool = False
    status: int | None = None


def fork(task: Callable[[], dict[str, Any]], seconds: float, megabytes: int | None, log: Path) -> Forked:
    """Run ``task`` in a fork, in a process group of its own; its result must be JSON."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _keep_only(writer)
        _run(task, seconds, megabytes, log, writer)
    os.close(writer)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return Forked(pid, reader, time.monotonic(), seconds, log)


def _keep_only(descriptor: int) -> None:
    """Close the host's other descriptors: its own pipe, and those of other contracts."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 1 << 16)


def is_over(started: float, seconds: float) -> bool:
    """Whether the time since ``started`` (monotonic) is over; a busy machine allows more."""
    passed = time.monotonic() - started
    return passed >= seconds and passed >= seconds * _crowding()


def _crowding() -> float:
    """Return the number of runnable processes per processor, at least 1."""
    try:
        return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST_CROWDED)
    except (AttributeError, OSError):
        return 1.0


def _run(task: Callable[[], dict[str, Any]], seconds: float, megabytes: int | None, log: Path, writer: int) -> None:
    status = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        die_with_parent()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(target, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        cpu = int(seconds) * max(os.cpu_count() or 1, 1) + 5
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        if megabytes is None:
            most = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        else:
            _limit_memory(megabytes)
        data = json.dumps(task()).encode("utf-8")
        while data:
            data = data[os.write(writer, data) :]
        status = 0
    except MemoryError:
        with contextlib.suppress(BaseException):
            os.write(writer, json.dumps({"error": f"out of memory: more than {megabytes} MB"}).encode())
            status = 0
    finally:
        # The host's clean-up must not run again in the fork.
        os._exit(status)


def _limit_memory(megabytes: int, *, for_good: bool = True) -> None:
    """Allow ``megabytes`` of address space beyond what is mapped now; no limit if that size is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(read_text("/proc/self/statm").split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + (megabytes << 20)
        hard = limit if for_good else resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def limit_host(megabytes: int) -> None:
    """Limit memory and file size in this process from now on; the waiting parent limits the time.

    An import may leave a running thread. Forks get limits of their own.
    """
    _limit_memory(megabytes, for_good=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def receive(process: Forked) -> bool:
    """Read the available data; False at the end of the pipe."""
    chunk = os.read(process.reader, 1 << 16)
    if len(process.received) <= MAX_RESULT_BYTES:
        process.received += chunk
    return bool(chunk)


def has_ended(process: Forked) -> bool:
    """Whether the process is over; it is reaped then."""
    if process.status is None:
        process.status = _reaped(process.pid, os.WNOHANG)
    return process.status is not None


def _reaped(pid: int, options: int) -> int | None:
    """Return the status of an ended process, or None; 0 if the package made the system reap it."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:
        return 0
    return status if found else None


def kill(process: Forked) -> None:
    """Kill the process and everything it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def finish(process: Forked) -> dict[str, Any]:
    """Reap the process and return its result, or ``{"error": line}``."""
    if process.status is None:
        process.status = _reaped(process.pid, 0)
    kill(process)  # processes it may have left
    status = process.status or 0
    os.set_blocking(process.reader, False)
    with contextlib.suppress(BlockingIOError):
        while receive(process):
            pass
    os.close(process.reader)
    try:
        return _result(process, status)
    finally:
        process.log.unlink(missing_ok=True)  # all of them together could be large


def _result(process: Forked, status: int) -> dict[str, Any]:
    if process.timed_out:
        return {"error": f"did not end within {process.seconds:g} s"}
    if os.WIFSIGNALED(status):
        return {"error": f"the process was {told_ending(-os.WTERMSIG(status))}{last_words(process.log)}"}
    try:
        result = parse_json(process.received)
    except ValueError:
        code = os.WEXITSTATUS(status)
        return {"error": f"the process ended with status {code} and no result{last_words(process.log)}"}
    return result if isinstance(result, dict) else {"error": "the process gave no result"}


def last_words(log: Path) -> str:
    """Return the last line of a log after a colon; empty if there is none."""
    with contextlib.suppress(OSError):
        lines = [line for line in read_tail(log, 4000).decode("utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return f": {' '.join(lines[-1].split())[:300]}"
    return ""
