"""The Test section of a pull request to verl-omni: what ran, on what, the measured values, how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from scaffold.terminal.printable import printable, printable_command
from scaffold.verify.report.number import figure, figures
from scaffold.verify.report.verdict import LIBRARIES, counts, pitfalls, skips, verdict
from scaffold.verify.result import CheckResult, VerifyReport

HEADING = "### Test"
LEVELS = {
    "contract": "Contracts on a tiny model",
    "rollout": "Real rollout against training, on a CPU",
    "train": "The real trainer, on a CPU",
}
# A pull request holds 65,536 characters, and a reason may be a thousand.
REASON_CHARACTERS = 400
ZERO_WIDTH_SPACE = "&#8203;"


def markdown_report(report: VerifyReport) -> str:
    """Return ``report`` as GitHub Markdown that starts with the template's heading."""
    parts = [
        HEADING,
        "",
        f"{code('omni-scaffold verify')} ran {code(report.package)} with {LIBRARIES[report.contract]}.",
    ]
    parts += [f"{verdict(report)} ({counts(report)})", *filter(None, [report.trust])]
    for level, heading in LEVELS.items():
        checks = [check for check in report.checks if check.level == level]
        if checks:
            parts += ["", f"**{heading}**", "", *_table(checks)]
    failed = [_reason([check], check.reason) for check in report.checks if check.status == "fail"]
    skipped = [_reason(checks, reason) for reason, checks in skips(report).items()]
    for heading, found in (("Failed", failed), ("Skipped", skipped)):
        if found:
            parts += ["", f"**{heading}**", "", *found]
    if report.environment:
        rows = ((prose(name), prose(value)) for name, value in report.environment.items())
        parts += ["", "**Environment**", "", *_rows(("", ""), ("---", "---"), rows)]
    if report.commands:
        parts += ["", "**Repeat it**", "", *_fenced(report.commands)]
    return "\n".join(parts) + "\n"


def prose(text: object) -> str:
    """``text`` so that Markdown shows it as it is: no markup, HTML, mention, reference, link or picture."""
    escaped = re.sub(r"([\\`*_{}\[\]()<>#|~!&$])", r"\\\1", printable(text))
    # A backslash does not stop GitHub's own rules for @name, #1 and addresses; a space of no width does.
    escaped = re.sub(r"(@|#|:(?=//)|www(?=\.))", rf"\1{ZERO_WIDTH_SPACE}", escaped)
    return re.sub(r"^([+-]|\d+[.)])(?=\s)", ZERO_WIDTH_SPACE + r"\1", escaped)


def code(text: object) -> str:
    """``text`` as a code span that also holds in a table."""
    content = printable(text) or " "
    fence = "`" * (_longest_run(content) + 1)
    # Backticks at an end would join the fence; blanks there are dropped by Markdown again.
    padded = f" {content} " if content[0] == "`" or content[-1] == "`" else content
    return f"{fence}{padded}{fence}".replace("|", "\\|")


def _table(checks: Iterable[CheckResult]) -> list[str]:
    rows = []
    for check in checks:
        value, limit = figures(check.value, check.limit)
        numbers = (value, limit, figure(check.floor), prose(check.unit or ""))
        rows.append((f"{prose(check.title)}<br>{code(check.id)}", f"**{check.status}**", *numbers))
    titles = ("contract", "result", "measured", "limit", "floor", "unit")
    return _rows(titles, ("---", "---", "---:", "---:", "---:", "---"), rows)


def _rows(titles: Iterable[str], rules: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (titles, rules, *rows)]


def _reason(checks: Sequence[CheckResult], reason: str) -> str:
    reason = printable(reason) or "no reason was given"
    if len(reason) > REASON_CHARACTERS:
        reason = reason[: REASON_CHARACTERS - 1] + "…"
    known = pitfalls(checks[0])
    names = ", ".join(code(check.id) for check in checks)
    return f"- {names}{f' ({known})' if known else ''}: {prose(reason)}"


def _fenced(commands: Iterable[str]) -> list[str]:
    lines = [printable_command(command) for command in commands]
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return [f"{fence}shell", *lines, fence]


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
