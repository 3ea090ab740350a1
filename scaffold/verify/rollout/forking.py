"""Controls servers that have imported the engine; each process of a run is a fork of one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scaffold.files.documents import parse_json
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.child.contained import Contained, start_contained
from scaffold.verify.child.leftovers import end_descendants
from scaffold.verify.rollout.environment import BOOT, Environment

SECONDS = 300.0  # for the imports


class Servers:
    """Servers by the folders of their environments; None where one could not import what it has to."""

    def __init__(self) -> None:
        self.started: dict[Path, Server | None] = {}

    def end(self) -> None:
        """End them all."""
        while self.started:
            _, server = self.started.popitem()
            if server is not None:
                server.end()


_servers: Servers | None = None


@contextlib.contextmanager
def forking(servers: Servers | None = None) -> Iterator[None]:
    """Inside the block, processes of one environment are forks of one server; a block may stand in another.

    What has to be imported is imported once.

    Args:
        servers: those to use and to leave running; without them the outermost block ends what it has started.
    """
    global _servers
    if _servers is not None:
        yield
        return
    _servers = servers or Servers()
    try:
        yield
    finally:
        used, _servers = _servers, None
        if servers is None:
            used.end()


def forked(
    environment: Environment, command: Sequence[str], variables: Mapping[str, str], log: Path
) -> ForkedProcess | None:
    """Start ``command`` as a fork of the environment's server.

    Args:
        environment: where it runs.
        command: a script of this tool, and its arguments.
        variables: its whole environment.
        log: file that gets all it prints; it runs in that folder.

    Returns:
        The process, or None outside of ``forking`` and where the imports fail: it is to be started by itself then.
    """
    if _servers is None:
        return None
    known = _servers.started.get(environment.folder)
    if known is not None and not known.alive:
        known.end()
        del _servers.started[environment.folder]
    if environment.folder not in _servers.started:
        _servers.started[environment.folder] = Server.start(environment, variables)
    server = _servers.started[environment.folder]
    return None if server is None else server.fork(command, variables, log)


class Server:
    """A process of ``engine_side/server.py`` that is ready."""

    def __init__(self, process: Contained, opened: contextlib.ExitStack) -> None:
        self.process, self._opened = process, opened
        self.alive = True
        self._received = b""

    @classmethod
    def start(cls, environment: Environment, variables: Mapping[str, str]) -> Server | None:
        """Start one and wait for its imports; None where they fail."""
        opened = contextlib.ExitStack()
        folder = opened.enter_context(scratch_folder("engine"))
        with (folder / "log").open("wb") as log:
            process = start_contained(
                [str(environment.python), str(BOOT), "--serve"],
                cwd=folder,
                variables={**variables, "TMPDIR": str(folder)},
                stdin=child_process.PIPE,
                stdout=child_process.PIPE,
                stderr=log,
            )
        server = cls(process, opened)
        try:
            ready = server.answer(SECONDS)
        except BaseException:
            server.end()
            raise
        if ready is None:
            server.end()
            return None
        return server

    def fork(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> ForkedProcess | None:
        """Start a command; None where the server is gone."""
        request = {
            "command": list(command),
            "variables": dict(variables),
            "folder": str(log.parent),
            "log": str(log),
        }
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            answer = self.answer(SECONDS)
            if answer is not None:
                return ForkedProcess(self, int(answer["pid"]))
        self.alive = False
        return None

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the next answer; None on timeout, or if ``alive`` says that none will come."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self.alive = False
                return None
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        try:
            found = parse_json(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.alive = False
            return None
        return found

    def end(self) -> None:
        """End the server and all that it has started."""
        self.alive = False
        self.process.end()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._opened.close()


class ForkedProcess:
    """A fork of a server, with as much of a `Process` as a run needs."""

    def __init__(self, server: Server, pid: int) -> None:
        self.server, self.pid = server, pid
        self.returncode: int | None = None

    def end(self) -> None:
        """Kill it and its processes; the server kills orphans."""
        if self.poll() is None:
            end_descendants(self.pid)
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._ended(0.0)

    def wait(self) -> int:
        """Wait for its end."""
        while (code := self._ended(1.0)) is None:
            pass
        return code

    def _ended(self, seconds: float) -> int | None:
        if self.returncode is None:
            answer = self.server.answer(seconds)
            if answer is not None:
                self.returncode = os.waitstatus_to_exitcode(int(answer["status"]))
            elif not self.server.alive:
                self.returncode = -signal.SIGKILL  # it ends with its server
        return self.returncode
