"""Findings for a person: place, message, source line with carets, what to do."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from scaffold.check.catalogue import find_rule
from scaffold.check.finding import Finding
from scaffold.check.report import CheckReport
from scaffold.terminal.printable import printable_command

WIDEST = 160  # characters of a source line that are shown
_COLOURS = {"error": "31;1", "warning": "33;1", "bold": "1", "blue": "34;1", "cyan": "36"}


def render_text(report: CheckReport, *, colour: bool = False) -> str:
    """Return the findings as text, with a summary line at the end."""
    paint = _paint if colour else _plain
    blocks = [_block(finding, paint) for finding in report.findings]
    return "\n".join([*blocks, *_restrictions(report), summary(report)]) + "\n"


def render_statistics(report: CheckReport) -> str:
    """Return a line for each rule that found something, the most frequent first, and the summary line."""
    lines = [f"{count:5}  {severity:7}  {rule} {find_rule(rule).name}" for rule, severity, count in report.statistics]
    return "\n".join([*lines, *_restrictions(report), summary(report)]) + "\n"


def _restrictions(report: CheckReport) -> list[str]:
    return [f"note: {visible(one.told)}" for one in report.restricted]


def summary(report: CheckReport) -> str:
    """Return the last line: counts, or that everything is in order."""
    packages = f"{len(report.packages)} package{'s' * (len(report.packages) != 1)}"
    hidden = [f"{report.suppressed} suppressed"] if report.suppressed else []
    hidden += [f"{report.baselined} in the baseline"] if report.baselined else []
    tail = f" ({', '.join(hidden)})" if hidden else ""
    if report.clean:
        return f"All checks passed: {packages}, {report.files} files{tail}"
    counts = (
        f"{report.errors} error{'s' * (report.errors != 1)}, {report.warnings} warning{'s' * (report.warnings != 1)}"
    )
    safe = sum(finding.fix is not None and finding.fix.safety == "safe" for finding in report.findings)
    unsafe = sum(finding.fix is not None and finding.fix.safety == "unsafe" for finding in report.findings)
    fixes = [f"{safe} fixable with --fix"] if safe else []
    fixes += [f"{unsafe} with --unsafe-fixes"] if unsafe else []
    return f"Found {counts} in {packages}{tail}" + (f"; {', '.join(fixes)}" if fixes else "")


def _block(finding: Finding, paint: Callable[[str, str], str]) -> str:
    mark = {"safe": "[*] ", "unsafe": "[~] "}[finding.fix.safety] if finding.fix is not None else ""
    place = paint(visible(finding.path), "bold") + f":{finding.line}:{finding.column}:"
    said = paint(f"{finding.severity} {finding.rule}", finding.severity)
    lines = [f"{place} {said} {paint(mark, 'cyan')}{visible(finding.message)}"]
    source = finding.source.rstrip()
    if source:
        margin = " " * len(str(finding.line))
        bar = paint("|", "blue")
        shown, caret = _excerpt(finding, source)
        number = paint(str(finding.line), "blue")
        lines += [f"{margin} {bar}", f"{number} {bar} {shown}", f"{margin} {bar} {paint(caret, finding.severity)}"]
    if finding.help:
        margin = " " * len(str(finding.line)) if source else " "
        lines.append(f"{margin} {paint('=', 'blue')} help: {visible(finding.help)}")
    return "\n".join(lines) + "\n"


def _excerpt(finding: Finding, source: str) -> tuple[str, str]:
    start = min(finding.column - 1, len(source))
    end = finding.end_column - 1 if finding.end_line == finding.line else len(source)
    end = min(max(end, start + 1), max(len(source), start + 1))
    cut = max(0, start - WIDEST // 2) if len(source) > WIDEST else 0
    shown = source[cut : cut + WIDEST]
    lead, tail = "…" * bool(cut), "…" * (cut + WIDEST < len(source))
    before = visible(shown[: start - cut])
    marked = visible(shown[start - cut : end - cut])
    caret = " " * (len(lead) + _width(before)) + "^" * max(1, _width(marked))
    return lead + visible(shown) + tail, caret


def visible(text: str) -> str:
    """Return text in which control characters cannot act: tabs are a blank, others are escaped."""
    return printable_command(text.replace("\t", " "))


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _plain(text: str, style: str) -> str:
    return text


def _paint(text: str, style: str) -> str:
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if text else ""
