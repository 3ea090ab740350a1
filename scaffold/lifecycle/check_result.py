"""Runs the rules of ``check`` on what an update has written."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from scaffold.check import check_paths
from scaffold.lifecycle.text import plain_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaffold.check import Finding
    from scaffold.lifecycle.package import ScaffoldedPackage

SHOWN = 10


def findings_of(package: ScaffoldedPackage) -> tuple[Finding, ...]:
    """Return the findings of the rules in a package."""
    return check_paths([package.root / package.path]).findings


def print_findings(package: ScaffoldedPackage, findings: Sequence[Finding]) -> None:
    """Print the first findings and the command that shows all."""
    console = plain_console()
    for finding in findings[:SHOWN]:
        console.print(f"{finding.path}:{finding.line}: {finding.severity} {finding.rule} {finding.message}")
    if len(findings) > SHOWN:
        there = shlex.quote(package.from_here)
        console.print(f"and {len(findings) - SHOWN} more; run `omni-scaffold check {there}`")
