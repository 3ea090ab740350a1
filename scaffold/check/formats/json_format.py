"""Findings as the stable JSON of ``check``."""

from __future__ import annotations

from scaffold.check.finding import Finding
from scaffold.check.report import CheckReport
from scaffold.terminal.printable import json_text

SCHEMA = 1


def render_json(report: CheckReport) -> str:
    """Return the findings as one JSON object."""
    return _document(report, "findings", [finding_json(finding) for finding in report.findings])


def finding_json(finding: Finding) -> dict[str, object]:
    """Return one finding."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "message": finding.message,
        "help": finding.help,
        "checklist": finding.checklist,
        "fixable": finding.fixable,
    }


def render_statistics(report: CheckReport) -> str:
    """Return how often each rule found something as one JSON object, the most frequent first."""
    rows = [{"rule": rule, "severity": severity, "count": count} for rule, severity, count in report.statistics]
    return _document(report, "statistics", rows)


def _document(report: CheckReport, name: str, rows: list[dict[str, object]]) -> str:
    summary = {"files": report.files, "errors": report.errors, "warnings": report.warnings}
    settings = [
        {
            "file": one.file,
            "rules": one.rules,
            "rules_off": one.off,
            "findings_left_out": one.left_out,
            "baseline": one.baseline,
        }
        for one in report.restricted
    ]
    return json_text({"schema": SCHEMA, name: rows, "summary": summary, "settings": settings}) + "\n"
