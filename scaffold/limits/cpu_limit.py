"""A net below the budgets: what takes far more processor time than any real source is given up.

Budgets count steps where a source is worked out. Questions to what came out walk it in many ways of their own, so
what they take together is bounded by the clock of the process, which other processes do not move.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN = 0.05  # seconds until it is said again to whoever takes the error for something else


class CpuLimitError(ValueError):
    """It took too long: what was asked is not known."""


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
        """Do one piece; without a timer, or in another thread, it may take as long as it likes.

        Raises:
            CpuLimitError: the time of this piece, or of all, is over.
        """
        # Where nothing is left the error comes from inside, as it always does.
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
