"""A Python that has imported torch and its company once a run: programs that need them run in forks of it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ADDRESS = "OMNI_SCAFFOLD_WARM_PYTHON"
"""Environment variable with the server's socket; workers inherit it."""
# Memory in large pages, which a fork copies the table of in a tenth of the time.
LARGE_PAGES = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

HEAVY = ("torch.distributed.fsdp", "transformers", "diffusers", "peft", "tensordict", "safetensors.torch", "pytest")
LAZY = (("diffusers", "FlowMatchEulerDiscreteScheduler"), ("transformers", "AutoTokenizer"))


class WarmPython:
    """Runs programs as ``python`` would, in forks of one process, which imports when it is first asked.

    Args:
        name: tells one such process of a run from another, which imports other libraries.
    """

    def __init__(self, name: str = "") -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._address = ADDRESS + name
        if self._address not in os.environ:
            self._folder = Path(tempfile.mkdtemp(prefix="omni-scaffold-warm-"))
            os.environ[self._address] = str(self._folder / "socket")
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(os.environ[self._address])
                listening.listen()
                self._server = subprocess.Popen(
                    [sys.executable, __file__, str(listening.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[listening.fileno()],
                    env={**clean, **LARGE_PAGES, "HF_HUB_OFFLINE": "1"},
                )

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
            out, err = Path(folder, "out"), Path(folder, "err")
            with self.start(command, cwd=cwd, env=env, out=out, err=err) as answers:
                status = _answered(answers, command, timeout)
            told = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
            return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), *told)

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        out: Path,
        err: Path,
        libraries: str | None = None,
    ) -> socket.socket:
        """Start a program; its id, and its status when it has ended, come as lines on the socket.

        Libraries in the folder ``libraries`` go before those that are installed; it is the same for all programs.
        """
        order = {
            "libraries": libraries,
            "command": command,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "out": str(out),
            "err": str(err),
        }
        answers = socket.socket(socket.AF_UNIX)
        answers.connect(os.environ[self._address])
        answers.sendall(json.dumps(order).encode() + b"\n")
        return answers

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
        """End the process, where it was started."""
        if self._server is not None:
            self._server.communicate()
            del os.environ[self._address]
            shutil.rmtree(self._folder)


def _answered(answers: socket.socket, command: list[str], timeout: float) -> int:
    """Return the status that comes behind the id of the process."""
    received, until = b"", time.monotonic() + timeout
    while received.count(b"\n") < 2:
        if not select.select([answers], [], [], max(0.0, until - time.monotonic()))[0]:
            if b"\n" in received:
                os.killpg(int(received.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout)
        said = answers.recv(100)
        assert said, "the warm Python has ended"
        received += said
    return int(received.split()[1])


def serve(listening: socket.socket) -> None:
    """Import all, then fork a program for each order, until the input ends."""
    if listening not in select.select([listening, sys.stdin], [], [])[0]:
        return
    orders = [_accepted(listening)]
    libraries = orders[0][1]["libraries"]
    sys.path[:1] = [] if libraries is None else [libraries]
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name, attribute in LAZY:
        if name in sys.modules:
            getattr(sys.modules[name], attribute)
    _import_contracts()
    weakref.finalize._registry.clear()  # what imports would have done at the end is not for each program to do
    gc.collect()
    gc.freeze()  # programs do not look at what was imported, so they share its memory
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while orders or sys.stdin not in (ready := select.select([listening, ended, sys.stdin], [], [])[0]):
        if orders or listening in ready:
            answers, order = orders.pop() if orders else _accepted(listening)
            assert order["libraries"] == libraries
            program = os.fork()
            if program == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.closerange(ended, answers.fileno() + 1)
                listening.close()
                _run(order)
            running[program] = answers
            _say(answers, program)
        elif ended in ready:
            os.read(ended, 1000)
            while running and (found := os.waitpid(-1, os.WNOHANG))[0]:
                _say(answers := running.pop(found[0]), found[1])
                answers.close()


def _accepted(listening: socket.socket) -> tuple[socket.socket, dict[str, Any]]:
    answers, _ = listening.accept()
    return answers, json.loads(answers.makefile().readline())


def _import_contracts() -> None:
    """Import what hosts of `verify` run."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from scaffold.verify import contracts, subject

    for found in pkgutil.iter_modules(contracts.__path__):
        subject.contract_of(found.name)
    del sys.path[0]


def _say(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it
        answers.sendall(b"%d\n" % number)


def _run(order: dict[str, Any]) -> NoReturn:
    """Be the program, in a session of its own."""
    os.setsid()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, order["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
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
    serve(socket.socket(fileno=int(sys.argv[1])))
