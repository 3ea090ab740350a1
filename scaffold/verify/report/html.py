"""The report as one page that needs nothing else: no script, style, font or picture from anywhere."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from markupsafe import Markup

from scaffold import __version__
from scaffold.printable import printable, printable_command
from scaffold.reading import read_text
from scaffold.verify.report.curves import drawings
from scaffold.verify.report.margins import margins
from scaffold.verify.report.number import duration, figure, figures
from scaffold.verify.report.verdict import LIBRARIES, next_steps, pitfalls, trust, verdict
from scaffold.verify.result import CheckResult, VerifyReport

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
        trust=trust(report),
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
