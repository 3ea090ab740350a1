"""Where reports are printed, and how wide: a terminal's own width, and lines that nobody folds where there is none."""

from __future__ import annotations

import os

from rich.console import Console

# Wide enough for the longest place of vllm-omni beside its answer.
FILE_WIDTH = 140
PICTURE_WIDTH = 110


def report_console(*, picture: bool = False) -> Console:
    """Standard output as a console.

    Args:
        picture: whether the report is kept as a picture too, which has a width of its own.
    """
    if picture:
        return Console(record=True, width=PICTURE_WIDTH, highlight=False, emoji=False)
    attended = any(os.isatty(descriptor) for descriptor in range(3))
    width = None if attended or "COLUMNS" in os.environ else FILE_WIDTH
    return Console(width=width, highlight=False, emoji=False)
