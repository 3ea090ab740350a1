"""Answers for programs: one JSON document on standard output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from scaffold.printable import printable_command
from scaffold.progress import VOICE


def show_json(answer: Mapping[str, Any]) -> None:
    """Print an answer; it says its ``schema`` itself."""
    import json

    typer.echo(json.dumps(answer, indent=2))


def show_next(step: str) -> None:
    """Print what to do now, unless the result alone is wanted."""
    if not VOICE.quiet:
        typer.echo(printable_command(f"next: {step}"))
