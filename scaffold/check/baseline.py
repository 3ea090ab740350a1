"""A baseline hides known findings, so that only new ones fail a build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from scaffold.check.report import CheckReport, fingerprints
from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_json
from scaffold.files.reading import expanded, read_bytes

SCHEMA = 1


class Baseline(NamedTuple):
    """The names of known findings.

    Attributes:
        path: the file they were read from.
        known: the names, see `fingerprints`.
    """

    path: Path
    known: frozenset[str]

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline.

        Raises:
            ScaffoldError: there is none, or it is something else.
        """
        try:
            content = parse_json(read_bytes(path))
        except OSError as error:
            hint = "make one with --write-baseline"
            raise ScaffoldError(f"{path}: {error.strerror or error}", hint=hint) from error
        except MalformedError as error:
            raise ScaffoldError(f"{path} is not a baseline: {error}") from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ScaffoldError(f"{path} is not a baseline of this version", hint="make it anew with --write-baseline")
        findings = content.get("findings")
        if not isinstance(findings, list) or not all(
            isinstance(item, dict) and isinstance(item.get("fingerprint"), str) for item in findings
        ):
            raise ScaffoldError(f"{path} is not a baseline: its findings have no fingerprints")
        return cls(path, frozenset(item["fingerprint"] for item in findings))

    def apply(self, report: CheckReport) -> tuple[CheckReport, int]:
        """Return the report without known findings, and how many known findings no longer occur."""
        names = fingerprints(report.findings)
        new = tuple(finding for finding in report.findings if names[finding] not in self.known)
        gone = len(self.known - set(names.values()))
        return report._replace(findings=new, baselined=len(report.findings) - len(new)), gone


def write_baseline(path: Path, report: CheckReport) -> None:
    """Write the findings of a report as a baseline, all or nothing.

    Raises:
        ScaffoldError: it cannot be written.
    """

    from scaffold.check.writing import write_files  # slow to import

    names = fingerprints(report.findings)
    entries = [
        {"fingerprint": names[finding], "rule": finding.rule, "path": finding.key, "message": finding.message}
        for finding in report.findings
    ]
    entries.sort(key=lambda entry: (entry["path"], entry["rule"], entry["message"], entry["fingerprint"]))
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    target = expanded(path)
    write_files(target.parent.resolve(), {target.name: text.encode()})
