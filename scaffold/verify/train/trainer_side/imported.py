"""Imports the libraries of level train once; every process of a run is a fork, since imports take longer than most.

``python imported.py SOCKET``: the library host. For each run that asks, it forks a host of that run, which imports
verl-omni with the package and then forks what ``asking`` asks for: the driver, Ray's workers, the engine's processes.
A host has no threads, and no code of the package runs in the first one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import random
import resource
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from scaffold.verify.child.leftovers import adopt_orphans, die_with_parent, end_descendants
from scaffold.verify.rollout.engine_side.server import LAZY
from scaffold.verify.rollout.engine_side.server import MODULES as ENGINE
from scaffold.verify.train.trainer_side.asking import open_files
from scaffold.verify.train.trainer_side.hooks import install

# What the processes of a run import beside the engine; a module that a release has not is passed over.
LIBRARIES = (
    *ENGINE,
    "datasets",
    "hydra",
    "pandas",
    "ray.util.scheduling_strategies",
    "torch.distributed.fsdp",
    "transfer_queue",
    "uvloop",
    "verl.checkpoint_engine",
    "verl.experimental.agent_loop",
    "verl.trainer.ppo.ray_trainer",
    "verl.utils.checkpoint.fsdp_checkpoint_manager",
    "verl.workers.engine_workers",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "vllm.entrypoints.openai.api_server",
    "vllm_omni.entrypoints.async_omni",
)
VERL_OMNI = (
    "verl_omni",
    "verl_omni.agent_loop",
    "verl_omni.reward_loop",
    "verl_omni.trainer.main_diffusion",
    "verl_omni.trainer.diffusion.ray_diffusion_trainer",
    "verl_omni.trainer.diffusion.v1.trainer_base",
    "verl_omni.workers.engine.fsdp.diffusers_impl",
    "verl_omni.workers.rollout.vllm_rollout.vllm_omni_async_server",
)
# Numbers of open files below this one are left to those that a fork is given.
FIRST_FILE = 300
# Ray reads a worker's job once, when it is imported: the only one of a run's own cluster. Another is none of a fork's.
JOB, ONLY_JOB = "RAY_JOB_ID", "01000000"
# pyarrow's allocator holds its locks over a fork and starts its thread again in the child.
FORKED_WELL = ("jemalloc_bg_thd",)
SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD")


@dataclass(frozen=True)
class Request:
    """What a connection brings: ``message`` is JSON, ``files`` came with it."""

    message: dict[str, Any]
    files: list[int]


def main() -> None:
    """Import the libraries, then fork a host for each run, until the tool ends this process."""
    die_with_parent()
    del sys.path[0]  # the folder of this script, whose modules are no libraries
    listener = listening(sys.argv[1])
    os.environ[JOB] = ONLY_JOB
    # Whose end a worker ends with; this process outlives the run, at whose end all forks are killed.
    os.environ["RAY_RAYLET_PID"] = str(os.getpid())
    with low_numbers_free():
        imported(LIBRARIES)
        for library, names in LAZY.items():
            for name in names:
                getattr(importlib.import_module(library), name)
    one_thread()
    gc.collect()
    gc.freeze()
    while True:
        connection = listener.accept()[0]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        request = received(connection)
        if request is not None and os.fork() == 0:
            listener.close()
            serve_run(request.message, connection)
        connection.close()


def listening(place: str) -> socket.socket:
    """A socket of this path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place)
    listener.listen(64)
    return listener


@contextlib.contextmanager
def low_numbers_free() -> Any:
    """Have files that the block opens take high numbers, as far as the limit of open files bears it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    taken = [os.open(os.devnull, os.O_RDONLY)] if most == resource.RLIM_INFINITY or most > 2 * FIRST_FILE else []
    while taken and taken[-1] < FIRST_FILE:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for number in taken:
            os.close(number)


def imported(names: Iterable[str]) -> None:
    """Import modules; those that are not there are passed over.

    Raises:
        BaseException: one that is there cannot be imported.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise


def one_thread() -> None:
    """Refuse to fork beside threads: a fork has none of them, and keeps every lock that they hold.

    Raises:
        SystemExit: an import has started one.
    """
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    others = [name for task in tasks if (name := (task / "comm").read_text().strip()) not in FORKED_WELL]
    if others:
        sys.exit(f"the imports have started threads: {', '.join(others)}")


def received(connection: socket.socket) -> Request | None:
    """Read one request; None where the other end is gone."""
    with contextlib.suppress(OSError, ValueError):
        size, files, _, _ = socket.recv_fds(connection, 8, 1 << 8)
        body = b""
        while len(size) == 8 and len(body) < int.from_bytes(size, "big"):
            part = connection.recv(1 << 16)
            if not part:
                break
            body += part
        if body:
            return Request(json.loads(body), list(files))
        for number in files:
            os.close(number)
    return None


def serve_run(message: dict[str, Any], lifeline: socket.socket) -> NoReturn:
    """Become the host of one run, until the tool closes its connection.

    Args:
        message: ``socket`` to listen on, ``python`` that stands for the interpreter, ``variables``, ``log``.
        lifeline: the tool's connection; it is told ``+`` when forks can be had.
    """
    code = 1
    try:
        os.setsid()
        die_with_parent()
        adopt_orphans()
        log = os.open(message["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        take_over(message["variables"], None)
        use_interpreter(message["python"])
        listener = listening(message["socket"])
        install(os.environ["OMNI_SCAFFOLD_TRAIN"].split(","))
        with low_numbers_free():
            imported(VERL_OMNI)
        one_thread()
        gc.collect()
        gc.freeze()
        lifeline.sendall(b"+")
        Run(listener, lifeline).serve()
        code = 0
    except SystemExit as end:
        sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        end_descendants(os.getpid())
        os._exit(code)


def use_interpreter(python: str) -> None:
    """Have what is started as "this interpreter" be a fork, too."""
    sys.executable = python
    multiprocessing.set_executable(python)
    context: Any = importlib.import_module("ray._private.runtime_env.context").RuntimeEnvContext
    original = context.exec_worker

    def exec_worker(self: Any, *arguments: Any) -> Any:
        self.py_executable = python  # Ray's agent, which is no fork, has named its own
        return original(self, *arguments)

    context.exec_worker = exec_worker


class Run:
    """The loop of one run's host."""

    def __init__(self, listener: socket.socket, lifeline: socket.socket) -> None:
        self.listener, self.lifeline = listener, lifeline
        self.living: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.woken, False)

    def serve(self) -> None:
        """Fork what is asked for, and say how each has ended."""
        signal.set_wakeup_fd(self.wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for source in (self.listener, self.lifeline, self.woken):
            self.selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.lifeline:
                    return
                if key.fileobj is self.listener:
                    self.answer(self.listener.accept()[0])
                elif key.fd == self.woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.woken, 1 << 12)
                elif key.data in self.living:  # who asked is gone, by a signal that cannot be passed on
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(key.data, signal.SIGKILL)
                    self.forget(key.data)
            self.reap()

    def answer(self, connection: socket.socket) -> None:
        """Fork for one request."""
        connection.settimeout(30.0)
        request = received(connection)
        if request is None or not self.has_room(request, connection):
            with contextlib.suppress(OSError):
                connection.sendall(b"-")
            connection.close()
            for number in request.files if request else ():
                os.close(number)
            return
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            run_fork(self, request, connection)
        for number in request.files:
            os.close(number)
        with contextlib.suppress(OSError):
            connection.sendall(b"+%d\n" % pid)
        self.living[pid] = connection
        self.selector.register(connection, selectors.EVENT_READ, pid)

    def has_room(self, request: Request, connection: socket.socket) -> bool:
        """Whether no number that is asked for is one of a file of a library, and the job is that of the run."""
        own = {self.listener.fileno(), self.lifeline.fileno(), self.woken, self.wake, self.selector_number()}
        passing = {*own, connection.fileno(), *request.files, *(each.fileno() for each in self.living.values())}
        there = {number for number, _ in open_files()}
        free = not (there - passing - {0, 1, 2}) & set(request.message["files"])
        return free and request.message["variables"].get(JOB, ONLY_JOB) == ONLY_JOB

    def selector_number(self) -> int:
        """Number of the selector's own file."""
        return int(getattr(self.selector, "fileno", lambda: -1)())

    def close(self) -> None:
        """In a fork: let go of what is the host's."""
        self.selector.close()
        for connection in (self.listener, self.lifeline, *self.living.values()):
            connection.close()
        os.close(self.woken)
        os.close(self.wake)

    def forget(self, pid: int) -> None:
        """Close a connection."""
        connection = self.living.pop(pid)
        self.selector.unregister(connection)
        connection.close()

    def reap(self) -> None:
        """Say how those have ended that have; others are orphans of theirs."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self.living:
                    with contextlib.suppress(OSError):
                        self.living[ended[0]].sendall(b"%d\n" % ended[1])
                    self.forget(ended[0])


def run_fork(host: Run, request: Request, connection: socket.socket) -> NoReturn:
    """Run one command as a new interpreter would, and end the process."""
    code = 1
    try:
        for name in SIGNALS:
            signal.signal(getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        host.close()
        connection.close()
        place_files(request.files, request.message["files"])
        os.setsid()
        die_with_parent()
        fresh_numbers()
        gc.enable()
        arguments = request.message["arguments"]
        take_over(request.message["variables"], request.message["folder"])
        # Ray's settings are read once from the environment, which was another one then.
        importlib.import_module("ray._raylet").Config.initialize("")
        signal.pthread_sigmask(signal.SIG_SETMASK, request.message["blocked"])
        execute([word for place, word in enumerate(arguments) if word not in ("-u", "-B") or place])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        for step in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                step()
        # Exit without finalizing objects, which would copy all the memory that forks share.
        os._exit(code & 0xFF)


def place_files(brought: list[int], numbers: list[int]) -> None:
    """Give each open file the number that it has where it comes from."""
    beyond = max((*numbers, 2)) + 1
    moved = []
    for number in brought:
        moved.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, beyond))
        os.close(number)
    for number, wanted in zip(moved, numbers, strict=True):
        os.dup2(number, wanted)
        os.close(number)


def fresh_numbers() -> None:
    """Draw other random numbers than every other fork, as a new process does."""
    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.default_generator.seed()


def take_over(variables: dict[str, str], folder: str | None) -> None:
    """Take an environment and a folder over, with the places that its ``PYTHONPATH`` names first."""
    old = os.environ.get("PYTHONPATH", "").split(":")
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # that of the variables
    new = [place for place in variables.get("PYTHONPATH", "").split(":") if place]
    sys.path[:] = [*new, *(place for place in sys.path if place not in {*old, *new})]
    if folder is not None:
        os.chdir(folder)
        vars(multiprocessing.process)["ORIGINAL_DIR"] = folder  # where what is spawned begins


def execute(arguments: list[str]) -> None:
    """Run what a command line of Python names, as ``__main__``."""
    kind, rest = arguments[0], arguments[1:]
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        code = compile(rest[0], "<string>", "exec")
    elif kind == "-":
        sys.argv = ["-", *rest]
        sys.path.insert(0, "")
        code = compile(sys.stdin.buffer.read(), "<stdin>", "exec")
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        module.__file__ = kind
        code = compile(Path(kind).read_bytes(), kind, "exec")
    exec(code, module.__dict__)


if __name__ == "__main__":
    main()
