"""From measurements to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scaffold.verify.result import CheckResult, Level
from scaffold.verify.rollout.check import Check, Measurement


def judge(check: Check, found: Measurement, level: Level = "rollout") -> CheckResult:
    """Return the result of one check; a value that is not a number, or is missing, fails."""
    limit = found.limit if check.limit is None else check.limit
    if found.skipped:
        status = "skip"
    elif found.value is not None and limit is not None and found.value <= limit:
        status = "pass"
    else:
        status = "fail"
    return CheckResult(
        id=check.id,
        level=level,
        title=check.title,
        status=status,  # type: ignore[arg-type]
        value=found.value,
        limit=limit,
        unit=check.unit,
        reason=found.reason,
        floor=found.floor,
        series=found.series,
        seconds=found.seconds,
        pitfalls=check.pitfalls,
    )


def judge_all(checks: Sequence[Check], measured: Mapping[str, Measurement], missing: str) -> list[CheckResult]:
    """Return a result for every check; ``missing`` is the reason of those that have no measurement."""
    return [
        judge(check, measured.get(check.id) or Measurement(check.id, None, missing, skipped=True)) for check in checks
    ]


def skipped(checks: Iterable[Check], reason: str) -> list[CheckResult]:
    """Return every check as skipped for one reason."""
    return judge_all(list(checks), {}, reason)
