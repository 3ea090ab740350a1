"""How far each measurement stays from its limit and its floor: one logarithmic axis for each unit."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.printable import printable
from scaffold.verify.report.log_scale import LogScale
from scaffold.verify.report.number import figure, figures
from scaffold.verify.result import CheckResult, Status, VerifyReport


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
