"""``formula.txt`` of a package: what a rollout was seen to step with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scaffold.files.reading import read_text

NAME = "formula.txt"
HEAD = "What the pipeline makes of its denoiser's predictions, as `omni-scaffold verify --level rollout` saw it."
LEGEND = "p0 is the prediction of a step's first call, p1 of the next; x are the latents; c0 is a number of the step."


def recorded(folder: Path) -> list[str] | None:
    """Its lines, without what stands before them; None where there is no such file."""
    path = folder / NAME
    return lines_in(read_text(path)) if path.is_file() else None


def lines_in(text: str) -> list[str]:
    """The lines of a file's text: version and settings, steps and levels, and the formula."""
    return [line for line in text.splitlines() if line and line not in (HEAD, LEGEND)]


def differences(before: Sequence[str] | None, now: Sequence[str], *, versions: bool = False) -> list[str]:
    """Lines of a formula that another run under the same settings did not see.

    Args:
        before: what a run saw.
        now: what a later one saw.
        versions: whether the later one may be of another vllm-omni.
    """
    if not before or not now or _settings(before, versions) != _settings(now, versions):
        return []
    were, are = {_unplaced(line) for line in before}, {_unplaced(line) for line in now}
    return [line for line in now[1:] if _unplaced(line) not in were] + [
        f"gone: {line}" for line in before[1:] if _unplaced(line) not in are
    ]


def _unplaced(line: str) -> str:
    """A line without the numbers of statements, which move with any edit of their file."""
    return re.sub(r"(?<=\.py):\d+(?=:)", "", line)


def _settings(lines: Sequence[str], versions: bool) -> tuple[str, str]:
    """Guidance and number of steps, and the version where it counts."""
    version, _, guidance = lines[0].partition(", ")
    count = lines[1].partition(",")[0] if len(lines) > 1 else ""
    return ("" if versions else version) + guidance, count
