"""What a verification found: one result for each contract, and the report that holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scaffold.verify.report.number import figures

Level = Literal["contract", "rollout", "train"]
Status = Literal["pass", "fail", "skip"]
Library = Literal["verl_omni", "kit"]

SCHEMA = 1


@dataclass(frozen=True)
class CheckResult:
    """One contract, measured.

    Attributes:
        id: stable name, ``padding-invariance``; unique within a report.
        level: which level ran it.
        title: the contract as a sentence.
        status: ``skip`` always says why in ``reason``.
        value: what was measured; None where the contract is not a number, or nothing was measured.
        limit: the largest ``value`` that passes; None where the contract is not a number.
        unit: what ``value`` counts: ``relative``, ``absolute``, ``parameters``, ``steps``; None for no number.
        reason: one line: what was found, and why the limit is what it is where it passed.
        floor: what rounding alone gives, measured or known, in the unit of ``value``; None where that means nothing.
        series: curves by name, each a list of numbers, such as ``rollout log-prob`` and ``training log-prob``.
        seconds: wall time of this contract.
        pitfalls: numbers in the list of known bugs that a failure may mean.
        reads: whether it looks at the package's files only, so that nothing of it runs.
    """

    id: str
    level: Level
    title: str
    status: Status
    value: float | None
    limit: float | None
    unit: str | None
    reason: str
    floor: float | None = None
    series: Mapping[str, list[float]] | None = None
    seconds: float = 0.0
    pitfalls: tuple[int, ...] = ()
    reads: bool = False

    @property
    def line(self) -> str:
        """What is said of it as soon as it has ended."""
        value, limit = figures(self.value, self.limit)
        measured = f" {value}{f' (limit {limit})' if limit else ''}" if value else ""
        return f"{self.status} {self.id}{measured}"

    def to_json(self) -> dict[str, Any]:
        """The entry of ``checks``; the first five keys are stable, the others only ever grow.

        ``value`` is None where the measurement is infinite or not a number, which JSON cannot say; ``reason`` does.
        """
        return {
            "id": self.id,
            "status": self.status,
            "value": finite(self.value),
            "limit": finite(self.limit),
            "reason": self.reason,
            "level": self.level,
            "title": self.title,
            "unit": self.unit,
            "floor": finite(self.floor),
            "series": None
            if self.series is None
            else {name: [finite(value) for value in values] for name, values in self.series.items()},
            "seconds": round(self.seconds, 3),
            "pitfalls": list(self.pitfalls),
        }


@dataclass
class Outcome:
    """What one level found.

    Attributes:
        checks: one result for each selected check, in the order they are reported.
        environment: versions and origins by name; empty where no process started.
        contract: which ``verl_omni`` the level ran on.
    """

    checks: list[CheckResult] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    contract: Library = "kit"


TRUST: dict[Level, str] = {
    "contract": "level contract measures in processes that run the package, so all it says is the package's word",
    "rollout": "level rollout measures in the process that runs the package, so all it says is the package's word",
    "train": "level train reads what the package's own processes have written, so all it says is the package's word",
}
"""What a package that lies can still do to the results of a level."""


@dataclass(frozen=True)
class VerifyReport:
    """Everything one run of ``verify`` found.

    Attributes:
        package: folder name of the package, ``foo_flow_grpo``.
        contract: which ``verl_omni`` ran the package: the real one, or the kit's stand-in.
        checks: one result for each contract, in the order they ran.
        environment: versions and machine, by name; values are strings or numbers.
        commands: shell lines that repeat the run.
    """

    package: str
    contract: Library
    checks: tuple[CheckResult, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether any contract failed."""
        return any(check.status == "fail" for check in self.checks)

    @property
    def unmeasured(self) -> tuple[Level, ...]:
        """The levels of which everything that runs the package was skipped; each is not a pass."""
        found = []
        for level in dict.fromkeys(check.level for check in self.checks):
            checks = [check for check in self.checks if check.level == level]
            running = [check for check in checks if not check.reads] or checks
            if all(check.status == "skip" for check in running):
                found.append(level)
        return tuple(found)

    @property
    def trust(self) -> str:
        """Whose word the results are, level by level; a report without any says nothing."""
        levels = {check.level for check in self.checks}
        told = "; ".join(line for level, line in TRUST.items() if level in levels)
        return f"A pass is evidence about an honest package: {told}." if told else ""

    def count(self, status: Status) -> int:
        """Number of checks with ``status``."""
        return sum(check.status == status for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The stable JSON of the command."""
        return {
            "schema": SCHEMA,
            "contract": self.contract,
            "trust": self.trust,
            "checks": [check.to_json() for check in self.checks],
            "package": self.package,
            "environment": dict(self.environment),
            "commands": list(self.commands),
        }


def finite(value: float | None) -> float | None:
    """``value``, or None where it is infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None
