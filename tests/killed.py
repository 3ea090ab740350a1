"""A run that is killed: in forks of a small process, since that of all that tests have imported takes its time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

WRITES = ("open", "os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "scaffold.plan.transaction", "scaffold.render"])


def killed_at_step(step: int, action: Callable[[], object]) -> bool:
    """Run ``action``, which pickles, in a process that kills itself before its ``step``-th change of the disk.

    Returns:
        False if it ended.
    """
    child = FORKS.Process(target=_run, args=(step, action))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def _run(step: int, action: Callable[[], object]) -> None:
    count = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal count
        writes = event != "open" or (len(args) > 2 and isinstance(args[2], int) and args[2] & os.O_CREAT)
        if event in WRITES and writes:
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.dont_write_bytecode = True  # what is imported on the way is not a step
    os.fsync = lambda descriptor: None  # as in the tests' own process
    sys.addaudithook(hook)
    action()
