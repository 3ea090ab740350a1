"""The report on a terminal: one line for each contract, then why some failed or did not run, then what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scaffold.terminal.console import SafeConsole, report_console, said
from scaffold.terminal.printable import printable
from scaffold.verify.report.number import figures
from scaffold.verify.report.verdict import LIBRARIES, counts, next_steps, pitfalls, skips
from scaffold.verify.result import CheckResult, Level, VerifyReport
from scaffold.verify.rollout.formula_file import lines_of

STYLES = {"pass": "green", "fail": "bold red", "skip": "yellow"}
# Columns that the other columns take where units fold.
BESIDE = 44
LEVELS: tuple[Level, ...] = ("contract", "rollout", "train")


def print_report(
    report: VerifyReport, console: Console | None = None, *, svg: Path | None = None, kept: bool = False
) -> None:
    """Print ``report``; status is a word, so colour adds nothing that is lost without it.

    Args:
        report: what ``verify`` found.
        console: where to; by default stdout, as wide as the terminal; in a pipe no id is folded.
        svg: file that the printed text is kept in as a picture.
        kept: whether the report is written to a file as well.
    """
    if svg is not None:
        console = report_console(picture=True)
        print_report(report, console, kept=kept)
        console.save_svg(str(svg), title="omni-scaffold verify")
        return
    console = console or report_console()

    def text(value: object, style: str = "") -> Text:
        # A terminal that is not UTF-8 gets an escape instead of an error.
        safe = printable(value).encode(console.encoding, "backslashreplace").decode(console.encoding)
        return Text(safe, style, overflow="fold")

    console.print(text(report.package, "bold").append(f"  run with {LIBRARIES[report.contract]}", "not bold"))
    if told := report.trust:
        console.print(text(told))
    skipped = skips(report)
    together = {check.id for checks in skipped.values() for check in checks if len(checks) > 1}
    for level in LEVELS:
        checks = [check for check in report.checks if check.level == level and check.id not in together]
        if checks:
            console.print()
            console.print(_table(level, checks, text, console.width))
    failed = [(check.id, pitfalls(check), check.reason) for check in report.checks if check.status == "fail"]
    left = [(", ".join(check.id for check in checks), "", reason) for reason, checks in skipped.items()]
    for status, heading, found in (("fail", "failed", failed), ("skip", "skipped", left)):
        if found:
            console.print()
            console.print(Text(heading, STYLES[status]))
        for ids, known, reason in found:
            name = text(ids, "bold").append(f" ({known})" if known else "", "not bold")
            console.print(Padding(name, (0, 0, 0, 2), expand=False))
            console.print(Padding(text(reason or "no reason was given"), (0, 0, 0, 4), expand=False))
    for lines in filter(None, map(lines_of, report.checks)):
        console.print()
        console.print(Text("what the rollout steps with"))
        for line in lines:
            console.print(Padding(text(line), (0, 0, 0, 2), expand=False))
    console.print()
    console.print(text(counts(report), "bold"))
    for step in next_steps(report, kept=kept):
        console.print(text(f"next: {step}"))


def print_failures(report: VerifyReport) -> None:
    """Print the contracts that failed, with the reason, the counts, and whose word that is."""
    console = SafeConsole(soft_wrap=True)
    for check in report.checks:
        if check.status == "fail":
            console.print(said((check.line, STYLES["fail"]), f"  {check.reason}"))
    console.print(said(counts(report)))
    if told := report.trust:
        console.print(said(told))


def _table(level: Level, checks: list[CheckResult], text: Callable[..., Text], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    # An id is copied to --select: on a narrow terminal the unit folds first.
    longest = max(len(check.id) for check in checks)
    table.add_column(f"{level} level", overflow="fold", min_width=max(1, min(longest, width - BESIDE)))
    table.add_column("status", no_wrap=True)
    for heading in ("measured", "limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for check in checks:
        value, limit = figures(check.value, check.limit)
        table.add_row(
            text(check.id),
            text(check.status, STYLES[check.status]),
            text(value or "-"),
            text(limit or "-"),
            text(check.unit or ""),
            text(f"{check.seconds:.1f}"),
        )
    return table
