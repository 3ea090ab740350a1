"""The only way to start another program.

The working directory may be an untrusted checkout, and Python puts it first on the path of ``-c`` and ``-m``. So a
child runs in an empty folder unless the caller names one, empty entries of ``PYTHONPATH``, which mean the working
directory, are dropped, and programs and libraries are looked up only in the absolute entries of their paths.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scaffold.scratch import scratch_folder

if TYPE_CHECKING:
    from concurrent.futures import Executor

PIPE, NOTHING, SAME_AS_OUTPUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT

Process = subprocess.Popen[bytes]
Ended = subprocess.CompletedProcess
TookTooLong = subprocess.TimeoutExpired

# The likely cause of a signal that ended a program.
_CAUSES = {
    "SIGILL": "illegal instruction: a library is built for another processor",
    "SIGKILL": "perhaps out of memory",
    "SIGSEGV": "invalid memory access",
    "SIGBUS": "bus error, perhaps a full /dev/shm",
    "SIGABRT": "it gave up by itself",
    "SIGFPE": "arithmetic error",
    "SIGXCPU": "its limit of processor time",
    "SIGXFSZ": "its limit of a file's size",
}
_LOOKED_UP = {"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}


def environment(**changes: str) -> dict[str, str]:
    """Return the environment for a child: ours with ``changes``.

    ``PYTHONPATH`` is the user's and stays; its relative entries are resolved in this process. Relative entries of
    search paths for programs and libraries would resolve in the child's folder, and are dropped.
    """
    found = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSTARTUP")}
    for name in _LOOKED_UP & found.keys():
        found[name] = _absolute(found[name])
        if not found[name]:
            del found[name]
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if entries:
        found["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in entries)
    return {**found, **changes}


def program(name: str) -> str | None:
    """Return the path of a program; None if no absolute entry of ``PATH`` holds it."""
    path = _absolute(os.environ.get("PATH", os.defpath))
    return shutil.which(name, path=path) if path else None


def _absolute(path: str) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).is_absolute())


def run(
    command: Sequence[str],
    *,
    seconds: float | None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Ended[bytes]:
    """Run a program to its end and return its exit code and what it printed.

    Args:
        command: its path, or a name to look up, and its arguments; paths among them are absolute.
        seconds: time it may take; None for a step that the user watches.
        cwd: where it runs; an empty folder by default.
        variables: its whole environment; `environment` by default.
        stdin: what it reads.

    Raises:
        OSError: there is no such program, or it cannot be started.
        TookTooLong: it was ended.
    """
    if cwd is None:
        with scratch_folder("empty") as folder:
            return run(command, seconds=seconds, cwd=folder, variables=variables, stdin=stdin)
    return subprocess.run(
        _found(command),
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment() if variables is None else variables,
        timeout=seconds,
        check=False,
    )


def run_text(
    command: Sequence[str],
    *,
    seconds: float | None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ended[str]:
    """`run` for a program that prints UTF-8."""
    done = run(command, seconds=seconds, cwd=cwd, variables=variables)
    told = (part.decode("utf-8", errors="replace") for part in (done.stdout, done.stderr))
    return Ended(done.args, done.returncode, *told)


def start(
    command: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    stdin: int = NOTHING,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    inherited: Sequence[int] = (),
    own_session: bool = False,
) -> Process:
    """Start a program and leave it running.

    Args:
        command: as `run`.
        cwd: where it runs.
        variables: its whole environment.
        stdin: `PIPE` or `NOTHING`.
        stdout: `PIPE`, `NOTHING`, a file, or None for ours.
        stderr: the same, or `SAME_AS_OUTPUT`.
        inherited: descriptors that it gets.
        own_session: whether Ctrl-C does not reach it.
    """
    return subprocess.Popen(
        _found(command),
        cwd=cwd,
        env=variables,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=inherited,
        start_new_session=own_session,
    )


def told_ending(code: int) -> str:
    """Return how a program ended, in words: its exit code, or the signal and its likely cause.

    Args:
        code: as in Python, negative for a signal, or as in a shell, 128 plus the signal.
    """
    number = -code if code < 0 else code - 128
    if number not in signal.valid_signals():
        return f"over with exit code {code}"
    name = signal.Signals(number).name
    cause = f", {_CAUSES[name]}" if name in _CAUSES else ""
    return f"killed by {name}{cause}" if code < 0 else f"over with exit code {code} ({name}{cause})"


def _found(command: Sequence[str]) -> list[str]:
    name, *arguments = command
    path = name if os.sep in name else program(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not installed")
    return [path, *arguments]


@contextmanager
def ended_with(pool: Executor) -> Iterator[Executor]:
    """Yield a pool whose processes are killed if an exception such as Ctrl-C leaves the block."""
    import multiprocessing

    before = set(multiprocessing.active_children())
    with pool:
        try:
            yield pool
        except BaseException:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Block Ctrl-C for this process during the block, and for the processes it starts, permanently."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
