"""Prints a diff: verbatim for ``git apply``, and escaped on a terminal."""

from __future__ import annotations

import sys

import typer

from scaffold.terminal.printable import printable_lines


def show(difference: str) -> None:
    """Print a diff."""
    typer.echo(printable_lines(difference) if sys.stdout.isatty() else difference, nl=False)
