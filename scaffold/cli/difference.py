"""How a difference of files is printed: as it is, for ``git apply``, and on a terminal so that nothing in it acts."""

from __future__ import annotations

import sys

import typer

from scaffold.terminal.printable import printable_lines


def show(difference: str) -> None:
    """Print a difference of files."""
    typer.echo(printable_lines(difference) if sys.stdout.isatty() else difference, nl=False)
