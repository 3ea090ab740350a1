"""The report as one page that needs nothing else: no script, style, font or picture from anywhere."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from scaffold import __version__
from scaffold.files.reading import read_text
from scaffold.terminal.printable import printable, printable_command
from scaffold.verify.report.curves import drawings
from scaffold.verify.report.log_scale import LogScale
from scaffold.verify.report.number import duration, figure, figures
from scaffold.verify.report.verdict import LIBRARIES, next_steps, pitfalls, verdict
from scaffold.verify.result import CheckResult, Status, VerifyReport

# How far each measurement stays from its limit and its floor: one logarithmic axis for each unit.


@dataclass(frozen=True)
class Margin:
    """One measurement; places are per cent of its axis, None where there is nothing to place."""

    id: str
    status: Status
    value: str
    limit: str
    floor: str
    value_at: float | None
    limit_at: float | None
    floor_at: float | None


@dataclass(frozen=True)
class Panel:
    """The measurements of one unit on one axis; ``ticks`` are places and labels."""

    unit: str
    ticks: list[tuple[float, str]]
    rows: list[Margin]
    zero: bool


@dataclass(frozen=True)
class Margins:
    """All panels, and what is on none of them: reasons, each with the contracts it holds for."""

    panels: list[Panel]
    left_out: list[tuple[str, list[str]]]


def margins(report: VerifyReport) -> Margins:
    """Sort the checks of ``report`` into panels; every check is on one or named in ``left_out``."""
    units: dict[str, list[CheckResult]] = {}
    left_out: dict[str, list[str]] = {}
    for check in report.checks:
        if check.value is None:
            left_out.setdefault(_unmeasured(check), []).append(printable(check.id))
        else:
            units.setdefault(printable(check.unit or "no unit"), []).append(check)
    panels = []
    for unit, checks in units.items():
        scale = LogScale.of(number for check in checks for number in (check.value, check.limit, check.floor))
        if scale is None:
            for check in checks:
                left_out.setdefault(_off_scale(check, unit), []).append(printable(check.id))
        else:
            panels.append(Panel(unit, scale.ticks(), [_margin(check, scale) for check in checks], scale.zero))
    return Margins(panels, list(left_out.items()))


def _margin(check: CheckResult, scale: LogScale) -> Margin:
    value, limit = figures(check.value, check.limit)
    places = (scale.place(number) for number in (check.value, check.limit, check.floor))
    return Margin(printable(check.id), check.status, value, limit, figure(check.floor), *places)


def _unmeasured(check: CheckResult) -> str:
    return {
        "skip": "skipped, so nothing was measured",
        "fail": "failed without a measurement",
        "pass": "passed, and no number tells it",
    }[check.status]


def _off_scale(check: CheckResult, unit: str) -> str:
    value, limit = figures(check.value, check.limit)
    allowed = f" where {limit} is the limit" if limit else ""
    return f"{check.status}: measured {value}{allowed} ({unit}); a logarithmic axis has no room for that alone"


PAGE = Path(__file__).resolve().parent / "page"


def html_report(report: VerifyReport) -> str:
    """Return ``report`` as a page; whatever text it holds is shown, never markup, script or template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(PAGE, followlinks=False),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    script = read_text(PAGE / "page.js")
    return environment.get_template("page.html.jinja").render(
        package=printable(report.package),
        library=LIBRARIES[report.contract],
        outcome=_outcome(report),
        verdict=verdict(report),
        trust=report.trust,
        counts={status: report.count(status) for status in ("pass", "fail", "skip")},
        seconds=duration(sum(check.seconds for check in report.checks)),
        steps=next_steps(report, kept=True),
        rows=[_row(check, order) for order, check in enumerate(report.checks)],
        margins=margins(report),
        drawings=drawings(report),
        environment={printable(name): printable(value) for name, value in report.environment.items()},
        commands=[printable_command(command) for command in report.commands],
        version=__version__,
        style=Markup(read_text(PAGE / "page.css")),
        script=Markup(script),
        script_hash=_script_hash(script),
    )


def _outcome(report: VerifyReport) -> str:
    """``pass`` only where something of each level passed and nothing failed."""
    if report.failed:
        return "fail"
    return "skip" if report.unmeasured or not report.checks else "pass"


def _row(check: CheckResult, order: int) -> dict[str, Any]:
    value, limit = figures(check.value, check.limit)
    return {
        "order": order,
        "id": printable(check.id),
        "title": printable(check.title),
        "level": check.level,
        "status": check.status,
        "value": value,
        "limit": limit,
        "floor": figure(check.floor),
        "unit": printable(check.unit or ""),
        "seconds": f"{check.seconds:.2f}",
        "reason": printable(check.reason),
        "pitfalls": pitfalls(check),
    }


def _script_hash(script: str) -> str:
    """The page's own script as its content security policy names it; no other script may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
