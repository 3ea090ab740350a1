"""Findings as SARIF 2.1.0, with fixes, for code scanning services."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scaffold import __version__
from scaffold.check.catalogue import find_rule
from scaffold.check.finding import Finding
from scaffold.check.hunks import hunks, split_lines
from scaffold.check.report import CheckReport, fingerprints
from scaffold.check.rule import Rule
from scaffold.terminal.printable import json_text

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://github.com/omni-scaffold/omni-scaffold"


def render_sarif(report: CheckReport) -> str:
    """Return one SARIF log with one run."""
    rules = sorted({finding.rule for finding in report.findings})
    places = {rule: at for at, rule in enumerate(rules)}
    names = fingerprints(report.findings)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "omni-scaffold",
                "informationUri": HOME,
                "version": __version__,
                "rules": [_rule(find_rule(rule)) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, places[finding.rule], names[finding]) for finding in report.findings],
    }
    if report.restricted:
        notes = [{"level": "note", "message": {"text": one.told}} for one in report.restricted]
        run["invocations"] = [{"executionSuccessful": True, "toolConfigurationNotifications": notes}]
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    text = rule.documentation.strip()
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": text.partition("\n\n")[0].replace("\n", " ")},
        "help": {"text": text, "markdown": text},
        "helpUri": f"{HOME}/blob/main/docs/rules.md#{rule.id.lower()}",
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": [rule.group, *rule.checklist]},
    }


def _result(finding: Finding, index: int, name: str) -> dict[str, Any]:
    message = f"{finding.message}. {_sentence(finding.help)}" if finding.help else finding.message
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
    }
    if finding.source and finding.line == finding.end_line:
        shown = finding.source[finding.column - 1 : finding.end_column - 1]
        if shown:
            region["snippet"] = {"text": shown}  # type: ignore[assignment]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": message},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}},
        ],
        "partialFingerprints": {"omniScaffold/v1": name},
    }
    if finding.fix is not None and (changes := _changes(finding)):
        text = "Safe fix" if finding.fix.safety == "safe" else "Fix that may change what the code is meant to do"
        result["fixes"] = [{"description": {"text": text}, "artifactChanges": changes}]
    return result


def _changes(finding: Finding) -> list[dict[str, Any]]:
    assert finding.fix is not None
    changes = []
    for path, text in finding.fix.texts().items():
        old = finding.fix.sources(path)
        lines = split_lines(old)
        replacements = []
        for hunk in hunks(old, text):
            region = {"startLine": hunk.start + 1, "startColumn": 1, "endLine": hunk.end + 1, "endColumn": 1}
            if hunk.end >= len(lines) and lines and not lines[-1].endswith(("\n", "\r")) and hunk.end > hunk.start:
                # The last line has no end: the region ends where the file does.
                region |= {"endLine": len(lines), "endColumn": len(lines[-1]) + 1}
            replacements.append({"deletedRegion": region, "insertedContent": {"text": hunk.text}})
        if replacements:
            changes.append({"artifactLocation": {"uri": _uri(path)}, "replacements": replacements})
    return changes


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _uri(path: str) -> str:
    return Path(path).as_uri() if path.startswith("/") else quote(os.fsencode(path), safe="/:@!$&'()*+,;=~")
