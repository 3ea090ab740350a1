"""Answers for programs: one JSON document on standard output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer


def show_json(answer: Mapping[str, Any]) -> None:
    """Print an answer; it says its ``schema`` itself."""
    import json

    typer.echo(json.dumps(answer, indent=2))
