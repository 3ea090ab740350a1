"""Runs between the tool and a program, and kills all the program's processes, whichever of the three is killed.

``python keeper.py LIFELINE DESCRIPTORS COMMAND…``: a pipe whose other end the tool holds, and the descriptors the
command inherits. All processes of the command stay descendants of this one, even in another session and without an
environment; when the command or the tool ends, they are killed. The exit code, or the signal, is the command's.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Run the command until it or the tool ends."""
    lifeline, kept, *command = sys.argv[1:]
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from scaffold.verify.child.leftovers import adopt_orphans, end_descendants

    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the tool closes the pipe
    inherited = [int(number) for number in kept.split(",") if number]
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    os.set_inheritable(int(lifeline), False)
    status = None
    pid = os.fork()
    if pid == 0:
        _become(command)
    for descriptor in (0, 1, 2, *inherited):
        with suppress(OSError):
            os.close(descriptor)
    while status is None:
        ready = select.select([int(lifeline), ended], [], [])[0]
        if int(lifeline) in ready:
            break
        os.read(ended, 1 << 12)
        status = _reaped(pid)
    end_descendants(os.getpid())
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # on systems where descendants cannot be found
    if status is None:
        os._exit(1)
    if os.WIFSIGNALED(status):
        with suppress(OSError):  # SIGKILL needs no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _become(command: list[str]) -> None:
    """Execute the command in the forked process; exit with 127 if that fails."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _reaped(pid: int) -> int | None:
    """Return the command's status if it has ended; reap all other ended processes, too."""
    found = None
    with suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found = one[1] if one[0] == pid else found
    return found


if __name__ == "__main__":
    main()
