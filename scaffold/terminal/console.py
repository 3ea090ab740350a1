"""The tool's console: printed text cannot control the terminal, nor be read as markup; and how wide a report is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from scaffold.terminal.printable import no_command, printable_command, printable_lines


class SafeConsole(Console):
    """A console without markup, emoji and highlighting, with control characters escaped.

    It stops printing when a pipe is closed, but the exit code is still set.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render with control characters escaped; styles are not part of the text."""
        begins = True
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control:
                yield segment
                continue
            if text.isascii() and text.isprintable() and "::" not in text and "##" not in text:
                begins = begins and not text.strip()
                yield segment
                continue
            shown = text if text.isprintable() or text == "\n" else printable_lines(text)
            first, *wrapped = shown.split("\n")  # wrapped parts of a long line begin lines too
            lines = [no_command(first) if begins else first, *map(no_command, wrapped)]
            begins = (begins or bool(wrapped)) and not lines[-1].strip()
            shown = "\n".join(lines)
            yield segment if shown == text else Segment(shown, segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def said(*parts: object) -> Text:
    """Return one line of parts; a part that is a pair is a text and its style."""
    line = Text(overflow="fold")
    for part in parts:
        text, style = part if isinstance(part, tuple) else (part, "")
        line.append(printable_command(text), style)
    return line


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
