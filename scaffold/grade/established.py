"""What the facts establish of a pipeline, as far as a partial package uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.port import Port

FORMULAS = {
    "u+s(c-u)": "unconditional + scale * (conditional - unconditional)",
    "c+(s-1)(c-u)": "conditional + (scale - 1) * (conditional - unconditional)",
    "c+s(c-u)": "conditional + scale * (conditional - unconditional)",
}


@dataclass(frozen=True)
class Established:
    """Answers for one pipeline; what is unknown is None."""

    report: Report
    port: Port | None

    def value(self, key: str) -> Any:
        """Return a fact's value; None where it is unknown."""
        fact = self.report.fact(key)
        return None if fact.confidence == "unknown" else fact.value

    def place(self, *keys: str) -> str:
        """Return ``file:line`` of the first fact that has a place, else that of the pipeline's class."""
        for key in (*keys, "detail.pipeline.class"):
            fact = self.report.fact(key)
            if key.endswith("location") and isinstance(fact.value, str):
                return fact.value
            if fact.evidence:
                return f"{fact.evidence[0].file}:{fact.evidence[0].line}"
        return self.report.upstream.module.replace(".", "/") + ".py:1"

    @property
    def schedule(self) -> bool:
        """Whether the noise levels are a shifted straight line from 1 to 0 with a known number of points."""
        return (
            self.value("answers.scheduler.steps") in ("n", "n-1")
            and isinstance(self.value("answers.scheduler.shift"), int | float)
            and self.value("answers.scheduler.direction") in ("descending", "ascending")
            and self.value("detail.schedule.kind") in (None, "linear", "ascending")
        )

    @property
    def sign(self) -> int | None:
        """Sign of the velocity over the denoiser's output; None where it is not known that it is one."""
        negated, direction = self.value("answers.scheduler.negated"), self.value("answers.scheduler.direction")
        if self.value("detail.denoiser.predicts_clean") is not False or not isinstance(negated, bool):
            return None
        if "FlowMatch" not in str(self.value("answers.scheduler.class") or ""):
            return None
        return {"descending": -1 if negated else 1}.get(str(direction))

    @property
    def guidance(self) -> bool:
        """Whether formula and scale of the guidance are known, and nothing else takes part in it."""
        branches = self.value("answers.cfg.branches")
        if branches == 1:
            return True
        return (
            branches == 2
            and self.value("detail.cfg.formula") in FORMULAS
            and len(self.value("answers.cfg.scales") or {}) == 1
            and not self.value("answers.cfg.renorm")
            and not self.value("detail.cfg.interval_parameter")
        )
