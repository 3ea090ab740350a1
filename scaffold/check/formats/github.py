"""Findings as annotations of a GitHub workflow."""

from __future__ import annotations

from scaffold.check.finding import Finding
from scaffold.check.report import CheckReport
from scaffold.terminal.printable import no_command, printable_lines


def render_github(report: CheckReport) -> str:
    """Return one workflow command a finding, and one for settings that leave something out."""
    notices = [f"::notice title=omni-scaffold::{_escaped(one.told)}\n" for one in report.restricted]
    return "".join([*notices, *map(_annotation, report.findings)])


def _annotation(finding: Finding) -> str:
    properties = {
        "title": f"omni-scaffold ({finding.rule})",
        "file": finding.path,
        "line": str(finding.line),
        "col": str(finding.column),
        "endLine": str(finding.end_line),
    }
    if finding.end_line == finding.line:
        properties["endColumn"] = str(finding.end_column)
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    place = f"{finding.path}:{finding.line}:{finding.column}: {finding.rule} {finding.message}"
    text = f"{place}\nhelp: {finding.help}" if finding.help else place
    return f"::{finding.severity} {listed}::{_escaped(text)}\n"


def _escaped(text: str) -> str:
    return "\n".join(map(no_command, printable_lines(text).split("\n"))).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
