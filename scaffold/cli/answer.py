"""Output for programs: one JSON document on standard output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from scaffold.terminal.printable import json_text, printable_command
from scaffold.terminal.progress import VOICE


def show_json(answer: Mapping[str, Any]) -> None:
    """Print an answer, which contains its ``schema``."""
    typer.echo(json_text(answer))


def show_next(step: str) -> None:
    """Print the next step, except with ``-q``."""
    if not VOICE.quiet:
        typer.echo(printable_command(f"next: {step}"))
