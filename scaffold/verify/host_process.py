"""The process in which a package is imported: how it is started, what it is given, and what it says."""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.child.contained import start_contained
from scaffold.verify.child.devices import hidden
from scaffold.verify.child.isolation import is_over, last_words

IMPORT, END = "import", "end"
IMPORT_SECONDS = 120.0
HEARTBEAT = 0.5  # seconds between checks that the host is alive
PASSED_ON = frozenset(
    {"CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH", "HF_HOME", "HF_HUB_CACHE", "HOME", "LANG", "LC_ALL",
     "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "USER", "VIRTUAL_ENV"}
)  # fmt: skip
HOST = Path(__file__).resolve().parent / "child" / "host.py"


@contextmanager
def host_events(job: dict[str, Any], seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
    """Start a host and yield its events; an import that hangs and a host that dies are events, too.

    Args:
        job: what the host is given, see ``contract_level``.
        seconds: that it may take after its import.
    """
    with scratch_folder("verify") as folder:
        log = folder / "host.log"
        process = start_host({**job, "logs": str(folder)}, log)
        try:
            yield _events(process, log, seconds)
        finally:
            os.close(process.reader)
            process.end()


def _events(process: HostProcess, log: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """What a host says, ``seconds`` being allowed after its import; the clock starts with the first reading."""
    seen, started = False, time.monotonic()
    for event in _said(process, IMPORT_SECONDS, IMPORT_SECONDS + seconds):
        if event["event"] == END:
            break
        seen = True
        yield event
    if not seen:
        late = process.alive() and is_over(started, IMPORT_SECONDS)
        ended = f"it did not end within {IMPORT_SECONDS:g} s" if late else "the process ended"
        yield {"event": IMPORT, "error": f"{ended}{last_words(log)}", "origins": {}}


@dataclass(frozen=True)
class HostProcess:
    """A running host: the pipe of its events, a function that ends it, and whether it is alive."""

    reader: int
    end: Callable[[], None]
    alive: Callable[[], bool] = lambda: True


def start_host(job: dict[str, Any], log: Path) -> HostProcess:
    """Start ``child/host.py`` in a session of its own, its output going to ``log``."""
    reader, writer = os.pipe()
    with log.open("wb") as output:
        process = start_contained(
            [sys.executable, str(HOST), str(writer)],
            cwd=log.parent,
            variables=environment_for_package(),
            stdin=child_process.PIPE,
            stdout=output,
            stderr=child_process.SAME_AS_OUTPUT,
            inherited=(writer,),
        )
    os.close(writer)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
    return HostProcess(reader, process.end, lambda: process.poll() is None)


def environment_for_package() -> dict[str, str]:
    """Return the part of the user's environment for the package's processes, without tokens and secrets."""
    given = child_process.environment()
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("OMNI_SCAFFOLD_")}
    changes = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return hidden({**kept, **changes})


def _said(process: HostProcess, first_in: float, all_in: float) -> Iterator[dict[str, Any]]:
    """Yield a host's events until its end: the first within ``first_in`` seconds, the last within ``all_in``.

    The pipe may never close: a process started by the package can hold it open.
    """
    pending, started, seconds = b"", time.monotonic(), first_in
    with selectors.DefaultSelector() as selector:
        selector.register(process.reader, selectors.EVENT_READ)
        while not is_over(started, seconds):
            alive = process.alive()
            if not selector.select(HEARTBEAT):
                if not alive:
                    return
                continue
            chunk = os.read(process.reader, 1 << 16)
            if not chunk:
                return
            pending += chunk
            *lines, pending = pending.split(b"\n")
            seconds = all_in
            yield from (json.loads(line) for line in lines)
