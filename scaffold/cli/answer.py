"""Output for programs: one JSON document on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import typer

from scaffold.terminal.printable import json_text, printable_command, printable_lines
from scaffold.terminal.progress import VOICE


def show_json(answer: Mapping[str, Any]) -> None:
    """Print an answer, which contains its ``schema``."""
    typer.echo(json_text(answer))


def show_next(step: str) -> None:
    """Print the next step, except with ``-q``."""
    if not VOICE.quiet:
        typer.echo(printable_command(f"next: {step}"))


def show(difference: str) -> None:
    """Print a diff."""
    typer.echo(printable_lines(difference) if sys.stdout.isatty() else difference, nl=False)
