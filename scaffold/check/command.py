"""The ``check`` command behind its options: what to print, and with which status to leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.check.report import CheckReport


class CheckRequest(NamedTuple):
    """The options of the command line."""

    paths: tuple[Path, ...] = ()
    format: str = "text"
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: Path | None = None
    write_baseline: Path | None = None
    explain: str | None = None
    list_rules: bool = False


class CheckOutcome(NamedTuple):
    """What the command prints.

    Attributes:
        text: for standard output.
        status: 0 clean, 1 findings.
        note: one line for standard error.
    """

    text: str
    status: int = 0
    note: str | None = None


def run_check(request: CheckRequest, *, colour: bool = False) -> CheckOutcome:
    """Do what the options say.

    Raises:
        ScaffoldError: wrong use.
    """
    if request.list_rules:
        from scaffold.check.explain import list_rules

        return CheckOutcome(list_rules())
    if request.explain is not None:
        from scaffold.check.explain import explain

        return CheckOutcome(explain(request.explain))
    if not request.paths:
        raise ScaffoldError("nothing to check", hint="give a package, a checkout of verl-omni or one file")
    select, ignore = _split(request.select), _split(request.ignore)
    report, note = _checked(request, select, ignore)
    fixing = request.fix or request.unsafe_fixes or request.diff
    if request.write_baseline is not None:
        if fixing:
            raise ScaffoldError("--write-baseline does not go with fixes", hint="fix first, then write the baseline")
        from scaffold.check.baseline import write_baseline

        write_baseline(request.write_baseline, report)
        count = len(report.findings)
        return CheckOutcome(f"wrote {count} finding{'s' * (count != 1)} to {request.write_baseline}\n")
    if not fixing:
        return CheckOutcome(_rendered(report, request.format, colour), int(not report.clean), note)
    return _fixed(request, select, ignore, report, colour)


def _checked(request: CheckRequest, select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[CheckReport, str | None]:
    """Check, and leave out what the baseline knows; the note says how much of the baseline is gone."""
    from scaffold.check.engine import check_targets
    from scaffold.check.targets import find_targets

    targets = find_targets(request.paths)
    report = check_targets(targets, select=select, ignore=ignore)
    if request.write_baseline is not None:
        return report, None
    paths = {target.settings.baseline for target in targets} - {None}
    if request.baseline is not None:
        paths = {request.baseline}
    return _without_known(report, [path for path in paths if path is not None])


def _without_known(report: CheckReport, paths: Sequence[Path]) -> tuple[CheckReport, str | None]:
    from scaffold.check.baseline import Baseline

    notes = []
    for path in sorted(paths):
        before = report.baselined
        report, gone = Baseline.read(path.expanduser()).apply(report)
        report = report._replace(baselined=report.baselined + before)
        if gone:
            notes.append(f"{gone} of the findings in {path} are gone; --write-baseline brings it up to date")
    return report, "; ".join(notes) or None


def _fixed(
    request: CheckRequest, select: tuple[str, ...], ignore: tuple[str, ...], report: CheckReport, colour: bool
) -> CheckOutcome:
    from scaffold.check.fixing import fix_paths

    safeties = ("safe", "unsafe") if request.unsafe_fixes else ("safe",)
    wanted = {finding for finding in report.findings if finding.fix is not None and finding.fix.safety in safeties}
    fixed = fix_paths(request.paths, select=select, ignore=ignore, unsafe=request.unsafe_fixes, wanted=wanted)
    if request.diff:
        count = f"{fixed.count} finding{'s' * (fixed.count != 1)} would be fixed"
        return CheckOutcome(fixed.diff(), int(not report.clean), count)
    fixed.write()
    after, note = _checked(request, select, ignore)
    text = _rendered(after, request.format, colour)
    if request.format == "text":
        files = len(fixed.files)
        text += f"Fixed {fixed.count} finding{'s' * (fixed.count != 1)} in {files} file{'s' * (files != 1)}\n"
    return CheckOutcome(text, int(not after.clean), note)


def _rendered(report: CheckReport, format: str, colour: bool) -> str:
    if format == "json":
        from scaffold.check.formats.json_format import render_json

        return render_json(report)
    if format == "github":
        from scaffold.check.formats.github import render_github

        return render_github(report)
    if format == "sarif":
        from scaffold.check.formats.sarif import render_sarif

        return render_sarif(report)
    from scaffold.check.formats.text import render_text

    return render_text(report, colour=colour)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value.replace(",", " ").split())
