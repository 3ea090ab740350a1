"""Makes a request to end the command an exception, so that child processes and temporary files do not stay."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def orderly_end() -> Iterator[None]:
    """Raise ``SystemExit(128 + number)`` on SIGTERM and SIGHUP, which otherwise skip all clean-up.

    Only the main thread can do so; elsewhere, and for a signal that the caller ignores, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {}

    def end(number: int, frame: FrameType | None) -> None:
        for name in handlers:
            signal.signal(name, signal.SIG_IGN)  # the clean-up is under way
        raise SystemExit(128 + number)

    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_DFL:
            handlers[name] = signal.signal(name, end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
