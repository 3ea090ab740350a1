"""Stands for the interpreter of a run: has its process forked by ``imported``, and lives and ends as that one does.

``python asking.py SOCKET PYTHON ARGUMENTS…``. A fork gets the arguments, the environment, the folder and the open
files of this process; signals are passed on, and so is the way it ends. Where no fork is to be had, this process
becomes the interpreter itself.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import sys

PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
# Of Ray's own programs, workers alone are started often; the others ask who their parent is.
WORKERS = ("default_worker.py", "setup_worker.py")
MOST_FILES = 250  # that one message carries


def main() -> None:
    """Live as the fork does; where there is none, become an interpreter."""
    place, python, *arguments = sys.argv[1:]
    pid: list[int] = []
    waiting: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid[0], number)
        else:
            waiting.append(number)

    host = _asked(place, arguments) if is_forked(arguments) else None
    if host is None:
        os.execv(python, [python, *arguments])
    for name in PASSED_ON:
        signal.signal(getattr(signal, name), pass_on)
    answers = host.makefile("r", encoding="utf-8")
    pid.append(int(answers.readline() or os._exit(1)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [getattr(signal, name) for name in PASSED_ON])
    for number in waiting:
        pass_on(number, None)
    # A pipe ends when nobody holds it any more, and the fork holds what it needs.
    for descriptor, _ in open_files():
        if descriptor != host.fileno():
            with contextlib.suppress(OSError):
                os.close(descriptor)
    status = answers.readline()
    _end(int(status) if status.strip() else signal.SIGKILL)


def is_forked(arguments: list[str]) -> bool:
    """Whether a command line is one that a fork can run: a module, a program in a text, a script, or standard input."""
    rest = list(arguments)
    while rest and rest[0] in ("-u", "-B"):
        rest.pop(0)
    if not rest or rest[0] in ("-m", "-c", "-"):
        return bool(rest)
    return not rest[0].startswith("-") and ("/ray/" not in rest[0] or rest[0].rpartition("/")[2] in WORKERS)


def _asked(place: str, arguments: list[str]) -> "socket.socket | None":
    """Hand everything over; None where the host is gone or refuses."""
    files = [number for number, inherited in open_files() if inherited]
    if len(files) > MOST_FILES:
        return None
    request = {
        "arguments": arguments,
        "variables": dict(os.environ),
        "folder": os.path.realpath("."),
        "files": files,
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    }
    host = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        host.connect(place)
        body = json.dumps(request).encode()
        socket.send_fds(host, [len(body).to_bytes(8, "big")], files)
        host.sendall(body)
        if host.recv(1) == b"+":
            return host
    except OSError:
        pass
    host.close()
    return None


def open_files() -> "list[tuple[int, bool]]":
    """Numbers of open files, and whether a program that is started gets them."""
    found = []
    with os.scandir("/proc/self/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for number in sorted(numbers):
        with contextlib.suppress(OSError):  # that of the folder is closed
            found.append((number, os.get_inheritable(number)))
    return found


def _end(status: int) -> None:
    """End as the fork has ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
