"""What ``doctor`` prints: a line for each finding, and below it what is wrong and what mends it."""

from __future__ import annotations

from scaffold.doctor.examine import Finding
from scaffold.inspect.report_console import report_console
from scaffold.terminal.console import said

_STYLES = {"ok": "green", "absent": "yellow", "wrong": "red"}


def print_findings(findings: list[Finding]) -> None:
    """Print all findings, and how many of them are not as they should be."""
    console = report_console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = said((f"{finding.state:7}", _STYLES[finding.state]), (f"{finding.name:{width}}  ", "bold"))
        console.print(line.append_text(said(finding.found or finding.problem)), soft_wrap=True)
        if finding.state == "ok":
            continue
        console.print(said(f"        needed for: {finding.needed_for}"), soft_wrap=True)
        if finding.found:
            console.print(said(f"        {finding.problem}"), soft_wrap=True)
        if finding.mend:
            console.print(said(f"        run: {finding.mend}"), soft_wrap=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in _STYLES}
    console.print(said(", ".join(f"{count} {state}" for state, count in counts.items())))
