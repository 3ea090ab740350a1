"""Progress lines: on a terminal, for steps longer than a second; with ``-v`` everywhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING

from scaffold.terminal.interrupt import doing
from scaffold.terminal.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY_SECONDS = 1.0
_ERASE = "\r\x1b[2K"


class Voice:
    """How much a command says beside its answer: ``-q`` nothing, ``-v`` each step, in a pipe too."""

    quiet = False
    verbose = False

    @property
    def shows_progress(self) -> bool:
        """Whether lines that vanish again may be drawn."""
        return not self.quiet and sys.stderr.isatty()


VOICE = Voice()


def say(line: str) -> None:
    """Print a finished step on stderr: on a terminal, or with ``-v``; never with ``-q``."""
    if VOICE.quiet or not (VOICE.verbose or sys.stderr.isatty()):
        return
    erase = _ERASE if sys.stderr.isatty() else ""
    print(f"{erase}{printable(line)}", file=sys.stderr, flush=True)


def announce(line: str) -> None:
    """Announce on stderr a step that takes minutes, in a pipe too; not with ``-q``."""
    if not VOICE.quiet:
        erase = _ERASE if sys.stderr.isatty() else ""
        print(f"{erase}{printable(line)}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show ``text`` on stderr while the block runs, once it has run for a second; nothing on anything but a terminal.

    The message after an interruption names the step.

    Args:
        text: what is being done, such as ``fetching vllm-omni 0.30.0``.
    """
    if VOICE.verbose:
        say(text)
    with doing(text), _shown(text):
        yield


@contextmanager
def _shown(text: str) -> Iterator[None]:
    stream = sys.stderr
    if VOICE.verbose or not VOICE.shows_progress:
        yield
        return
    lock = Lock()
    shown = finished = False

    def show() -> None:
        nonlocal shown
        with lock:
            if not finished:
                stream.write(f"{_ERASE}{text} …")
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
                stream.write(_ERASE)
                stream.flush()


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with files read and files in all; the bar vanishes when the block ends.

    Args:
        label: what is read.
    """
    bar: Bar | None = None
    task: TaskID | None = None
    began = time.monotonic()
    terminal = VOICE.shows_progress

    def report(done: int, total: int) -> None:
        nonlocal bar, task
        if not terminal or (bar is None and time.monotonic() - began < DELAY_SECONDS):
            return
        if bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.text import Text

            description = TextColumn(Text(f"reading {label}").markup)
            bar = Progress(description, BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(label, total=total)
        if task is not None:
            bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()
