"""Hosts that have imported the libraries of level train; each process of a run on a CPU is a fork of one."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Lock

from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.child.contained import Contained, start_contained
from scaffold.verify.child.isolation import is_over

TRAINER_SIDE = Path(__file__).resolve().parent / "trainer_side"
HOST = TRAINER_SIDE / "imported.py"
SECONDS = 600.0  # for the imports, on a busy machine
LOOK_SECONDS = 0.2
TELL_SECONDS = 30.0
# What a run alone has; the rest is of all that a host serves. A host of libraries reads none of these.
OF_RUN = (
    "DATA_DIR",
    "LOGPROB_LIMIT",
    "MODEL_PATH",
    "NUM_GPUS",
    "OMNI_SCAFFOLD_ROLLOUT_DEVICES",
    "OMNI_SCAFFOLD_TRAIN_DTYPE",
    "OMNI_SCAFFOLD_TRAIN_EVENTS",
    "OMNI_SCAFFOLD_TRAIN_PACKAGE",
    "OMNI_SCAFFOLD_TRAIN_REQUEST",
    "OMNI_SCAFFOLD_TRAIN_RUN",
    "OMNI_SCAFFOLD_TRAIN_SIZES",
    "OMNI_SCAFFOLD_TRAIN_SOURCES",
    "OMNI_SCAFFOLD_TRAIN_VALIDATED",
    "PATH",
    "RAY_TMPDIR",
    "TMPDIR",
    "TOTAL_TRAIN_STEPS",
    "TRAIN_BATCH",
    "VERL_FILE_LOGGER_PATH",
)
Key = tuple[tuple[str, str], ...]


class Hosts:
    """Library hosts by what their processes have in common; None where one could not be had."""

    def __init__(self) -> None:
        self.started: dict[Key, Host | None] = {}
        self.lock = Lock()

    def of(self, python: Path, variables: Mapping[str, str]) -> Host | None:
        """The host of these variables, started where there is none; None where it has ended."""
        key = (("", str(python)), *sorted(variables.items()))
        with self.lock:
            if key not in self.started:
                self.started[key] = Host(python, variables)
            found = self.started[key]
            if found is not None and found.process.poll() is not None:
                found.end()
                found = self.started[key] = None
            return found

    def end(self) -> None:
        """End them all."""
        for host in self.started.values():
            if host is not None:
                host.end()
        self.started.clear()


_hosts: Hosts | None = None


@contextlib.contextmanager
def hosting() -> Iterator[None]:
    """Inside the block, runs on a CPU share hosts; outside of it, each process imports what it needs."""
    global _hosts
    before, _hosts = _hosts, _hosts or Hosts()
    try:
        yield
    finally:
        used, _hosts = _hosts, before
        if before is None:
            used.end()


@contextlib.contextmanager
def of_host(
    python: Path,
    folder: Path,
    short: Path,
    variables: Mapping[str, str],
    stopping: Event,
    wait: Callable[[float, str], None] | None = None,
) -> Iterator[dict[str, str]]:
    """Variables with which a run's processes are forks; none where there is no host, as where its imports fail.

    Args:
        python: of the environment.
        folder: of the run; what a host prints goes there.
        short: a folder for a socket, whose path has at most 107 characters.
        variables: of the run.
        stopping: set where the run is to be ended.
        wait: told every half minute before there is a host: seconds since the start, and what it does.
    """
    with contextlib.ExitStack() as opened:
        lifeline = None
        if _hosts is not None:
            host = _hosts.of(python, {name: value for name, value in variables.items() if name not in OF_RUN})
            lifeline = None if host is None else host.run(folder, short, variables, stopping, wait)
        if lifeline is None:
            yield {}
            return
        opened.enter_context(lifeline)
        yield {"PATH": f"{folder / 'python'}:{variables['PATH']}"}


class Host:
    """A process of ``trainer_side/imported.py``."""

    def __init__(self, python: Path, variables: Mapping[str, str]) -> None:
        self.python = python
        self._opened = contextlib.ExitStack()
        folder = self._opened.enter_context(scratch_folder("host", Path("/tmp")))
        self.socket, self.log = folder / "socket", folder / "log"
        with self.log.open("wb") as log:
            self.process: Contained = start_contained(
                [str(python), str(HOST), str(self.socket)],
                cwd=folder,
                variables={**variables, "TMPDIR": str(folder), "PATH": f"{python.parent}:/usr/bin:/bin"},
                stdout=log,
                stderr=child_process.SAME_AS_OUTPUT,
            )

    def run(
        self,
        folder: Path,
        short: Path,
        variables: Mapping[str, str],
        stopping: Event,
        wait: Callable[[float, str], None] | None = None,
    ) -> contextlib.AbstractContextManager[socket.socket] | None:
        """Have a host forked for one run; it ends with the connection. None where it cannot be had."""
        python = folder / "python" / "python3"
        python.parent.mkdir()
        words = [str(self.python), "-I", "-S", str(TRAINER_SIDE / "asking.py"), str(short / "forks"), str(self.python)]
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        (python.parent / "python").symlink_to(python)
        request = {
            "socket": str(short / "forks"),
            "python": str(python),
            "variables": {**variables, "PATH": f"{python.parent}:{variables['PATH']}"},
            "log": str(folder / "host.log"),
        }
        body = json.dumps(request).encode()
        lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline.settimeout(LOOK_SECONDS)
        started, sent = time.monotonic(), False
        told = started
        while self.process.poll() is None and not stopping.is_set() and not is_over(started, SECONDS):
            if wait is not None and is_over(told, TELL_SECONDS):
                told = time.monotonic()
                wait(told - started, "libraries are imported, once for all runs")
            try:
                if not sent:
                    lifeline.connect(str(self.socket))
                    lifeline.sendall(len(body).to_bytes(8, "big") + body)
                    sent = True
                if lifeline.recv(1) == b"+":
                    return lifeline
                break  # it could not import verl-omni, or the package
            except TimeoutError:
                continue
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(LOOK_SECONDS)
            except OSError:
                break
        lifeline.close()
        return None

    def end(self) -> None:
        """End it and all that it has forked."""
        self.process.end()
        self._opened.close()
