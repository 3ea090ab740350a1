"""The last line of a command whose other lines programs read: what to do next, for a person at a terminal."""

from __future__ import annotations

import sys

import typer


def next_step(text: str) -> None:
    """Print what to do next; nothing where the output goes to a file or another program."""
    if sys.stdout.isatty():
        typer.echo(f"next: {text}")
