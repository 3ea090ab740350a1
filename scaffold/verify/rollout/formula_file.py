"""Writes ``formula.txt`` of a package, as level ``rollout`` saw it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaffold.files.formula import HEAD, LEGEND, NAME
from scaffold.files.reading import read_text
from scaffold.verify.result import CheckResult

SEEN = "rollout-formula"


def lines_of(check: CheckResult) -> list[str]:
    """The lines that a run saw; none where it saw no formula."""
    if check.id != SEEN or check.status == "skip" or check.value is None:
        return []
    return [line for line in check.reason.split("; ") if not line.startswith("not so before: ")]


def write(folder: Path, checks: Sequence[CheckResult]) -> Path | None:
    """Write what a run saw into the package, where that agrees with what was written before.

    Returns:
        The file, where it is new or has changed.
    """
    for check in checks:
        if check.status == "pass" and (lines := lines_of(check)):
            path, text = folder / NAME, "\n".join([HEAD, LEGEND, "", *lines, ""])
            if path.is_file() and read_text(path) == text:
                return None
            path.write_text(text, encoding="utf-8")
            return path
    return None
