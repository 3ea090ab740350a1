"""What a report amounts to, and what to do next: the same words in every format."""

from __future__ import annotations

from scaffold.terminal.printable import printable
from scaffold.verify.report.number import duration
from scaffold.verify.result import CheckResult, VerifyReport

LIBRARIES = {
    "verl_omni": "the real verl_omni",
    "kit": "the contract kit, a stand-in for verl_omni",
}


def verdict(report: VerifyReport) -> str:
    """One sentence on the outcome; a run that measured nothing never sounds like a pass."""
    total, failed, skipped = len(report.checks), report.count("fail"), report.count("skip")
    if total == 0:
        return "No contract ran: nothing is verified."
    if failed:
        return f"{failed} of {_contracts(total)} {'fails' if failed == 1 else 'fail'}."
    if report.unmeasured:
        level = report.unmeasured[0]
        of = "" if skipped == total else f" of level {level}"
        count = sum(check.level == level for check in report.checks) if of else total
        if any(check.status != "skip" for check in report.checks if check.level == level):
            return f"Nothing of the package ran at level {level}: {skipped} of {_contracts(total)} were skipped."
        were = f"The one contract{of} was" if count == 1 else f"All {count} contracts{of} were"
        return f"{were} skipped: nothing{of} is verified."
    if skipped:
        passed = report.count("pass")
        return f"{passed} of {_contracts(total)} {'passes' if passed == 1 else 'pass'}, the rest was skipped."
    return "The one contract passes." if total == 1 else f"All {total} contracts pass."


def counts(report: VerifyReport) -> str:
    """``31 contracts: 28 pass, 1 fail, 2 skip; measured in 12.3 s``."""
    numbers = ", ".join(f"{report.count(status)} {status}" for status in ("pass", "fail", "skip"))
    seconds = sum(check.seconds for check in report.checks)
    return f"{_contracts(len(report.checks))}: {numbers}; measured in {duration(seconds)}"


def next_steps(report: VerifyReport, *, kept: bool = False) -> tuple[str, ...]:
    """What to do now, most urgent first, one line each; empty only where the report is ``kept`` in a file already."""
    steps = []
    failed = [check for check in report.checks if check.status == "fail"]
    skipped = [check for check in report.checks if check.status == "skip"]
    if failed:
        first = printable(failed[0].id)
        steps.append(f"repair {first} first, later ones may follow from it; --select {first} runs it alone")
    if skipped:
        steps.append(f"read why {_contracts(len(skipped))} {'was' if len(skipped) == 1 else 'were'} skipped")
    if failed or report.unmeasured or not report.checks:
        return tuple(steps) or ("give the package's folder, and ids that exist to --select",)
    if not any(check.level == "rollout" for check in report.checks):
        steps.append("run the real rollout on a CPU with --level rollout (`omni-scaffold env rollout` makes it ready)")
    if report.contract == "kit":
        steps.append("repeat it where the real verl_omni can be imported")
    if not kept:
        steps.append(
            "--report FILE.md writes the Test section of the pull request, --report FILE.html the page for reviewers"
        )
    return tuple(steps)


def remedy(report: VerifyReport) -> str:
    """Why most of what was skipped was, which says what to do about it."""
    found = skips(report)
    reason = max(found, key=lambda reason: len(found[reason]), default="")
    return printable(reason)[:400] or "the report says why"


def skips(report: VerifyReport) -> dict[str, list[CheckResult]]:
    """The checks that were skipped, by reason."""
    found: dict[str, list[CheckResult]] = {}
    for check in report.checks:
        if check.status == "skip":
            found.setdefault(check.reason or "no reason was given", []).append(check)
    return found


def pitfalls(check: CheckResult) -> str:
    """``pitfalls 1, 8`` where the check failed and known bugs may be behind it, else ""."""
    if check.status != "fail" or not check.pitfalls:
        return ""
    return f"pitfall{'s' if len(check.pitfalls) > 1 else ''} {', '.join(map(str, check.pitfalls))}"


def _contracts(count: int) -> str:
    return f"{count} contract{'' if count == 1 else 's'}"
