"""Where reports are printed, and how wide: a terminal's own width, and lines that nobody folds where there is none."""

from __future__ import annotations

import os

from scaffold.terminal.console import SafeConsole

# Wide enough for the longest place of vllm-omni beside its answer.
FILE_WIDTH = 140
PICTURE_WIDTH = 110


def report_console(*, picture: bool = False) -> SafeConsole:
    """Standard output as a console.

    Args:
        picture: whether the report is kept as a picture too, which has a width of its own.
    """
    if picture:
        return SafeConsole(record=True, width=PICTURE_WIDTH)
    attended = any(os.isatty(descriptor) for descriptor in range(3))
    width = None if attended or "COLUMNS" in os.environ else FILE_WIDTH
    return SafeConsole(width=width)
