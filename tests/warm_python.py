"""A Python that has imported torch and its company once: programs that need them run in forks of it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

HEAVY = ("torch.distributed.fsdp", "transformers", "diffusers", "peft", "tensordict", "safetensors.torch", "pytest")
LAZY = (("diffusers", "FlowMatchEulerDiscreteScheduler"), ("transformers", "AutoTokenizer"))


class WarmPython:
    """Runs programs as ``python`` would, in forks of one process; it is started with the first of them."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._ordering = threading.Lock()

    def __call__(
        self,
        arguments: Sequence[object],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end.

        Args:
            arguments: what stands behind ``python``: ``-c CODE``, ``-m MODULE`` or a file, ``-W ACTION`` before it.
            cwd: where it runs; here by default.
            env: its whole environment; ours by default.
            timeout: seconds.

        Raises:
            subprocess.TimeoutExpired: it was ended.
        """
        command = list(map(str, arguments))
        with tempfile.TemporaryDirectory(prefix="omni-scaffold-warm-") as folder:
            out, err, answer = (Path(folder, name) for name in ("out", "err", "answer"))
            os.mkfifo(answer)
            reader = os.open(answer, os.O_RDONLY | os.O_NONBLOCK)
            try:
                with self._ordering:
                    self._order(
                        command=command,
                        cwd=str(cwd or Path.cwd()),
                        env=dict(os.environ if env is None else env),
                        out=str(out),
                        err=str(err),
                        answer=str(answer),
                    )
                status = _answered(reader, command, timeout)
            finally:
                os.close(reader)
            told = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
            return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), *told)

    def ranks(self, *programs: Sequence[object], env: Mapping[str, str]) -> list[subprocess.CompletedProcess[str]]:
        """Run programs beside each other, each told its rank as torchrun tells it."""
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        world = {"WORLD_SIZE": str(len(programs)), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}

        def run(rank: int) -> subprocess.CompletedProcess[str]:
            return self(programs[rank], env={**env, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)})

        with ThreadPoolExecutor(len(programs)) as pool:
            return list(pool.map(run, range(len(programs))))

    def end(self) -> None:
        """End the process."""
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def _order(self, **order: Any) -> None:
        if self._server is None:
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**clean, "HF_HUB_OFFLINE": "1"},
            )
            assert self._server.stdout is not None
            assert self._server.stdout.readline() == "ready\n"
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()


def _answered(reader: int, command: list[str], timeout: float) -> int:
    """Return the status that comes behind the id of the process."""
    received, until = b"", time.monotonic() + timeout
    while received.count(b"\n") < 2:
        if not select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
            if b"\n" in received:
                os.killpg(int(received.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout)
        received += os.read(reader, 100)
    return int(received.split()[1])


def serve() -> None:
    """Import all, then fork a program for each line of orders."""
    del sys.path[0]
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name, attribute in LAZY:
        if name in sys.modules:
            getattr(sys.modules[name], attribute)
    gc.collect()
    gc.freeze()  # programs do not look at what was imported, so they share its memory
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if os.fork() == 0:
            _keep(json.loads(line))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _keep(order: dict[str, Any]) -> NoReturn:
    """Run the program in a process of its own, and say how it ended."""
    program = os.fork()
    if program == 0:
        os.setsid()
        _run(order)
    with contextlib.suppress(BrokenPipeError), open(order["answer"], "w") as pipe:  # noqa: PTH123
        pipe.write(f"{program}\n")
        pipe.flush()
        pipe.write(f"{os.waitpid(program, 0)[1]}\n")
    os._exit(0)


def _run(order: dict[str, Any]) -> NoReturn:
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY | os.O_CREAT),
        (2, order["err"], os.O_WRONLY | os.O_CREAT),
    ):
        os.dup2(os.open(path, flags), descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    code = 0
    try:
        _program(order["command"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _program(command: list[str]) -> None:
    """Do what ``python COMMAND`` does."""
    while command[0] == "-W":
        warnings.simplefilter(command[1])
        command = command[2:]
    named = command[0] in ("-c", "-m")
    given, rest = command[named], command[named + 1 :]
    sys.argv = ["-c" if command[0] == "-c" else given, *rest]
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    first = {"-c": "", "-m": os.getcwd()}.get(command[0], str(Path(given).parent))  # noqa: PTH109
    sys.path[:0] = [first, *entries]
    main = sys.modules["__main__"] = ModuleType("__main__")
    if command[0] == "-c":
        exec(compile(given, "<string>", "exec"), main.__dict__)
    elif command[0] == "-m":
        runpy.run_module(given, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(given, run_name="__main__")


if __name__ == "__main__":
    serve()
