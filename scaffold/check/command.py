"""The ``check`` command: turns parsed options into printed text and an exit status."""

# Annotations are evaluated here: a NamedTuple would compile each that is left as a string, at every start.

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scaffold.check.baseline import Baseline, write_baseline
from scaffold.check.engine import check_targets
from scaffold.check.formats import github, json_format, sarif, text
from scaffold.check.report import CheckReport, Restriction
from scaffold.check.settings import Settings
from scaffold.check.targets import find_targets, is_project, shown_path
from scaffold.errors import ScaffoldError
from scaffold.files.layout import PIPELINES
from scaffold.files.reading import expanded


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
    statistics: bool = False
    exit_zero: bool = False
    output_file: Path | None = None
    isolated: bool = False


class CheckOutcome(NamedTuple):
    """What the command prints.

    Attributes:
        text: for standard output.
        status: 0 clean, 1 findings.
        note: one line for standard error.
        found: whether there are findings, whatever the status.
        package: the package that was checked, as the next command takes it; None where there are several.
    """

    text: str
    status: int = 0
    note: str | None = None
    found: bool = False
    package: str | None = None


def run_check(request: CheckRequest, *, colour: bool = False) -> CheckOutcome:
    """Run the command.

    Raises:
        ScaffoldError: wrong use.
    """
    if request.list_rules or request.explain is not None:
        # What shows differences and writes files is slow to import, here and below.
        from scaffold.check.explain import explain, list_rules

        return CheckOutcome(list_rules() if request.list_rules else explain(request.explain or ""))
    if request.statistics and request.format not in ("text", "json"):
        raise ScaffoldError(f"--statistics has no format {request.format}", hint="take text or json")
    request = request._replace(paths=request.paths or (_here(),))
    outcome = _run(request, colour and request.output_file is None)
    if request.output_file is not None and not request.diff and request.write_baseline is None:
        outcome = _kept(outcome, request.output_file)
    return outcome._replace(status=0) if request.exit_zero else outcome


def _here() -> Path:
    """Return the package or tree around the working directory; the directory itself where there is none."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / PIPELINES).is_dir()), None)
    if root is None:
        root = next((folder for folder in (here, *here.parents) if is_project(folder)), None)
        return Path() if root is None else Path(os.path.relpath(root))
    if here != root / PIPELINES and here.is_relative_to(root / PIPELINES):
        return Path()
    return Path(os.path.relpath(root))


def _kept(outcome: CheckOutcome, file: Path) -> CheckOutcome:
    """Write the text to a file, and print where it is."""
    try:
        file.write_text(outcome.text, encoding="utf-8")
    except OSError as error:
        raise ScaffoldError(
            f"cannot write {file}: {error.strerror}", hint="name a file in a folder that is there"
        ) from None
    return outcome._replace(text="")


def _run(request: CheckRequest, colour: bool) -> CheckOutcome:
    select, ignore = _split(request.select), _split(request.ignore)
    report, note, package = _checked(request, select, ignore)
    fixing = request.fix or request.unsafe_fixes or request.diff
    if request.write_baseline is not None:
        if fixing:
            raise ScaffoldError("--write-baseline does not go with fixes", hint="fix first, then write the baseline")
        write_baseline(request.write_baseline, report)
        count = len(report.findings)
        return CheckOutcome(f"wrote {count} finding{'s' * (count != 1)} to {request.write_baseline}\n")
    if not fixing:
        return CheckOutcome(_rendered(report, request, colour), int(not report.clean), note, not report.clean, package)
    return _fixed(request, select, ignore, report, colour)


def _checked(
    request: CheckRequest, select: tuple[str, ...], ignore: tuple[str, ...]
) -> tuple[CheckReport, str | None, str | None]:
    """Check, and leave out the findings of the baseline.

    Returns:
        The report; a note on the checkout and on findings of the baseline that no longer occur; the path of the
        package if there is exactly one.
    """
    targets = find_targets(request.paths, Settings() if request.isolated else None)
    report = check_targets(targets, select=select, ignore=ignore)
    if request.write_baseline is not None:
        return report, None, None
    paths = {target.settings.baseline for target in targets} - {None}
    if request.baseline is not None:
        paths = {request.baseline}
        report = report._replace(restricted=tuple(told for told in map(_without_baseline, report.restricted) if told))
    packages = [(target.project, package.path) for target in targets for package in target.packages]
    only = shown_path(*packages[0]) if len(packages) == 1 else None
    report, note = _without_known(report, [path for path in paths if path is not None])
    notes = [*(target.newer for target in targets), note]
    return report, "; ".join(filter(None, notes)) or None, only


def _without_known(report: CheckReport, paths: Sequence[Path]) -> tuple[CheckReport, str | None]:
    notes = []
    for path in sorted(paths):
        before = report.baselined
        report, gone = Baseline.read(expanded(path)).apply(report)
        report = report._replace(baselined=report.baselined + before)
        if gone:
            notes.append(f"{gone} of the findings in {path} are gone; --write-baseline brings it up to date")
    return report, "; ".join(notes) or None


def _without_baseline(told: Restriction) -> Restriction | None:
    """What is left of it where the command line names another baseline."""
    return told._replace(baseline=None) if told.off or told.left_out else None


def _fixed(
    request: CheckRequest, select: tuple[str, ...], ignore: tuple[str, ...], report: CheckReport, colour: bool
) -> CheckOutcome:
    from scaffold.check.fixing import fix_paths

    safeties = ("safe", "unsafe") if request.unsafe_fixes else ("safe",)
    wanted = {finding for finding in report.findings if finding.fix is not None and finding.fix.safety in safeties}
    fixed = fix_paths(
        request.paths,
        select=select,
        ignore=ignore,
        settings=Settings() if request.isolated else None,
        unsafe=request.unsafe_fixes,
        wanted=wanted,
    )
    if request.diff:
        count = f"{fixed.count} finding{'s' * (fixed.count != 1)} would be fixed"
        return CheckOutcome(fixed.diff(), int(not report.clean), count)
    fixed.write()
    after, note, package = _checked(request, select, ignore)
    text = _rendered(after, request, colour)
    if request.format == "text":
        files = len(fixed.files)
        text += f"Fixed {fixed.count} finding{'s' * (fixed.count != 1)} in {files} file{'s' * (files != 1)}\n"
    return CheckOutcome(text, int(not after.clean), note, not after.clean, package)


def _rendered(report: CheckReport, request: CheckRequest, colour: bool) -> str:
    format = request.format
    if format == "json":
        return json_format.render_statistics(report) if request.statistics else json_format.render_json(report)
    if format == "github":
        return github.render_github(report)
    if format == "sarif":
        return sarif.render_sarif(report)
    return text.render_statistics(report) if request.statistics else text.render_text(report, colour=colour)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value.replace(",", " ").split())
