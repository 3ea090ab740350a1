"""A limit on processor time, in addition to the step budgets, far above what any real source takes.

Budgets count the steps of evaluation. Analyses of the result are not counted, so their total is bounded by the
process's CPU clock, which other processes do not affect.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN = 0.05  # seconds until the error is raised again, in case code swallows it


class CpuLimitError(ValueError):
    """The work took too long; the answer is unknown."""


class CpuLimit:
    """Processor time for several pieces of work.

    Args:
        seconds: for all of them together.
        each: for one of them.
    """

    def __init__(self, seconds: float, each: float) -> None:
        self._until, self._each = time.process_time() + seconds, each

    @contextmanager
    def work(self) -> Iterator[None]:
        """Limit one piece of work; without a timer, or in another thread, there is no limit.

        Raises:
            CpuLimitError: the time of this piece, or of all, is over.
        """
        # If no time is left, the error is still raised inside the block.
        left = max(min(self._each, self._until - time.process_time()), AGAIN / 10)
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, _give_up)
        signal.setitimer(signal.ITIMER_VIRTUAL, left, AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


def _give_up(number: int, frame: object) -> None:
    raise CpuLimitError("the source takes too long to follow")


@contextmanager
def collector_off() -> Iterator[None]:
    """Disable collection inside the block or the decorated function, then restore it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
