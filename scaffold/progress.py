"""A line that says what is going on, on a terminal, for steps that take longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer

from scaffold.interrupt import doing

DELAY_SECONDS = 1.0


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show ``text`` on stderr while the block runs, once it has run for a second; nothing where stderr is no terminal.

    Whoever interrupts the block is told what it did.

    Args:
        text: what is being done, such as ``fetching vllm-omni 0.30.0``.
    """
    with doing(text), _shown(text):
        yield


@contextmanager
def _shown(text: str) -> Iterator[None]:
    stream = sys.stderr
    if not stream.isatty():
        yield
        return
    lock = Lock()
    shown = finished = False

    def show() -> None:
        nonlocal shown
        with lock:
            if not finished:
                stream.write(f"\r\x1b[2K{text} …")
                stream.flush()
                shown = True

    timer = Timer(DELAY_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            finished = True
            if shown:
                stream.write("\r\x1b[2K")
                stream.flush()
