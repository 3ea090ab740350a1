"""Findings as the stable JSON of ``check``."""

from __future__ import annotations

import json

from scaffold.check.report import CheckReport

SCHEMA = 1


def render_json(report: CheckReport) -> str:
    """Return the findings as one JSON object."""
    findings = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "path": finding.path,
            "line": finding.line,
            "column": finding.column,
            "message": finding.message,
            "checklist": finding.checklist,
            "fixable": finding.fixable,
        }
        for finding in report.findings
    ]
    summary = {"files": report.files, "errors": report.errors, "warnings": report.warnings}
    return json.dumps({"schema": SCHEMA, "findings": findings, "summary": summary}, indent=2) + "\n"
