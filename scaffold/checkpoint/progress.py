"""A progress bar on stderr for checkpoints that take longer than a second to read; on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY_SECONDS = 1.0


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with files read and files in all; the bar vanishes when the block ends.

    Args:
        label: what is read.
    """
    bar: Bar | None = None
    task: TaskID | None = None
    began = time.monotonic()
    terminal = sys.stderr.isatty()

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
