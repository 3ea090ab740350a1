"""What ``verify`` shows: a table on the terminal, one HTML page for reviewers, a section for a pull request.

``print_report`` writes to stdout; ``write_report`` picks the format by the file's suffix; ``check_destination`` says
beforehand whether it could.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.verify.report.destination import check_destination, check_suffix, write_report

if TYPE_CHECKING:
    from scaffold.verify.result import VerifyReport

__all__ = ["check_destination", "check_suffix", "print_failures", "print_report", "write_report"]


def print_failures(report: VerifyReport) -> None:
    """Print what failed, and how many passed."""
    from scaffold.verify.report.terminal import print_failures as show

    show(report)


def print_report(report: VerifyReport, *, svg: Path | None = None, kept: bool = False) -> None:
    """Print the report as a table on stdout, as wide as the terminal (80 columns where there is none).

    Args:
        report: what ``verify`` found.
        svg: file that the printed text is kept in as a picture.
        kept: whether the report is written to a file as well.
    """
    from scaffold.console import SafeConsole
    from scaffold.verify.report.terminal import print_report as show

    if svg is None:
        show(report, kept=kept)
        return
    console = SafeConsole(record=True, width=110)
    show(report, console, kept=kept)
    console.save_svg(str(svg), title="omni-scaffold verify")
