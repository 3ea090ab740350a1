"""The source that answers rest on: the lines of one answer, and the files of all, to be opened."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.inspect.report import ANSWERS, SCHEMA

if TYPE_CHECKING:
    from scaffold.inspect.report import Report
    from scaffold.plan import Plan
    from scaffold.upstream import UpstreamSource

AROUND = 3


def lines_of(report: Report, source: UpstreamSource, name: str) -> dict[str, Any]:
    """Return an answer with the lines that it rests on.

    Args:
        report: the answers.
        source: what they were read from.
        name: of an answer, such as ``scheduler.steps``, or of another fact, such as ``detail.media.kind``.

    Returns:
        ``schema``, ``fact``, ``value``, ``confidence``, and under ``evidence`` for each place ``file``, ``line``,
        ``first`` (number of the first line shown) and ``lines``; a file of the checkpoint has none.

    Raises:
        ScaffoldError: there is no such answer; the nearest are named.
    """
    names = {key.removeprefix(ANSWERS): key for key in report.facts} | {key: key for key in report.facts}
    if name not in names:
        near = ", ".join(get_close_matches(name, names, 3, 0.4)) or "see `omni-scaffold inspect PIPELINE`"
        raise ScaffoldError(f"there is no answer {name!r}", hint=f"nearest: {near}")
    fact = report.facts[names[name]]
    evidence = []
    for place in fact.evidence:
        text = [] if _is_of_checkpoint(report, place.file) else source.read(place.file).splitlines()
        first = max(1, place.line - AROUND)
        shown = text[first - 1 : place.line + AROUND]
        evidence.append({"file": place.file, "line": place.line, "first": first, "lines": shown})
    return {
        "schema": SCHEMA,
        "fact": name,
        "value": fact.value,
        "confidence": fact.confidence,
        "evidence": evidence,
    }


def _is_of_checkpoint(report: Report, file: str) -> bool:
    """Whether a place is in the checkpoint that was given."""
    return report.headers is not None and file.startswith(f"{report.headers.source}/")


def print_lines(answer: dict[str, Any]) -> None:
    """Print what `lines_of` returned, the line itself marked."""
    from scaffold.terminal.console import report_console, said

    console = report_console()
    console.print(said((answer["fact"], "bold"), f" = {answer['value']!r} ({answer['confidence']})"), soft_wrap=True)
    for place in answer["evidence"]:
        console.print()
        console.print(said((f"{place['file']}:{place['line']}", "bold")), soft_wrap=True)
        width = len(str(place["first"] + len(place["lines"]) - 1))
        for number, line in enumerate(place["lines"], place["first"]):
            mark, style = (">", "bold") if number == place["line"] else (" ", "dim")
            console.print(said((f"{mark} {number:{width}} {line.replace(chr(9), '    ')}", style)), soft_wrap=True)
    if not answer["evidence"]:
        console.print("no place: the source does not say")


def plan_extract(report: Report, source: UpstreamSource, folder: Path) -> Plan:
    """Plan to write every file that an answer rests on below a folder, as it lies below the source's root."""
    from scaffold.plan.change import FileState, PlannedChange
    from scaffold.plan.output import states
    from scaffold.plan.plan import Plan

    places = {place.file for fact in report.facts.values() for place in fact.evidence}
    files = sorted(file for file in places if not _is_of_checkpoint(report, file))
    there = states(folder, files)
    changes = []
    for file in files:
        after = FileState.text(source.read(file))
        other = there[file] is not None and there[file] != after
        changes.append(PlannedChange(file, there[file], after, "differs" if other else None))
    return Plan(folder, tuple(changes), conflict_hint="name another folder")
