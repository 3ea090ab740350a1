"""The facts about a pipeline that a partial package uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.port import Port


@dataclass(frozen=True)
class Established:
    """The facts of one pipeline; unknown ones are None."""

    report: Report
    port: Port | None

    def value(self, key: str) -> Any:
        """Return a fact's value, or None if it is unknown."""
        fact = self.report.fact(key)
        return None if fact.confidence == "unknown" else fact.value

    def place(self, *keys: str) -> str:
        """Return ``file:line`` of the first fact with a place, else of the pipeline's class."""
        for key in (*keys, "detail.pipeline.class"):
            fact = self.report.fact(key)
            if key.endswith("location") and isinstance(fact.value, str):
                return fact.value
            if fact.evidence:
                return f"{fact.evidence[0].file}:{fact.evidence[0].line}"
        return self.report.upstream.module.replace(".", "/") + ".py:1"

    @property
    def sign(self) -> int | None:
        """Sign of the velocity d x / d sigma in what the loop gives its step; None where time's direction is unknown.

        A pipeline's velocity is the derivative by its own time, which may rise while the noise level falls.
        """
        return {"descending": 1, "ascending": -1}.get(str(self.value("answers.scheduler.direction")))

    @property
    def packed(self) -> bool:
        """Whether the branches of guidance are packed into one call with settings that are all known."""
        return bool(self.value("answers.cfg.execution") == "packed")
