"""The facts about a pipeline that a partial package uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.grade.noise_levels import noise_levels

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.port import Port

FORMULAS = {
    "u+s(c-u)": "unconditional + {scale} * (conditional - unconditional)",
    "c+(s-1)(c-u)": "conditional + ({scale} - 1) * (conditional - unconditional)",
    "c+s(c-u)": "conditional + {scale} * (conditional - unconditional)",
}

RENORMS = frozenset({"text_channel", "global", "channel"})
WHOLE_RULE = "lo <= step fraction <= hi"


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
    def schedule(self) -> bool:
        """Whether the noise levels are known: from a scheduler class, or from the loop's own computation."""
        return noise_levels(self)["kind"] is not None

    @property
    def sign(self) -> int | None:
        """Sign of the velocity d x / d sigma relative to the denoiser's output; None if that is unknown."""
        sign = self.value("detail.prediction.sign")
        return sign if sign in (1, -1) else None

    @property
    def guidance(self) -> bool:
        """Whether the formula and the scale of the guidance are known and complete."""
        return self.guidance_kind is not None

    @property
    def guidance_kind(self) -> str | None:
        """``none``, ``packed`` (the shared block computes it), ``written`` (the source's own expression) or ``pair``.

        ``pair`` is one formula with one scale at every step.
        """
        branches = self.value("answers.cfg.branches")
        if branches == 1:
            return "none"
        if self._is_packed():
            return "packed"
        if self.value("detail.cfg.combination") is not None:
            return "written"
        if self.value("answers.cfg.renorm") is None or self.report.fact("answers.cfg.interval").confidence == "unknown":
            return None
        renorms = self.value("answers.cfg.renorm")
        if branches == 2 and not renorms and self._always():
            scales = self.value("answers.cfg.scales") or {}
            known = self.value("detail.cfg.formula") in FORMULAS and list(scales.values()) != [None]
            return "pair" if known and len(scales) == 1 else None
        return None

    def _is_packed(self) -> bool:
        renorms = self.value("answers.cfg.renorm")
        return (
            renorms is not None
            and self.report.fact("answers.cfg.interval").confidence != "unknown"
            and self.value("answers.cfg.execution") == "packed"
            and self.value("detail.cfg.formula") == "u+s(c-u)"
            and self.value("detail.cfg.interval_rule") in (None, "lo < sigma <= hi", "lo <= sigma <= hi")
            and self.value("answers.scheduler.direction") == "descending"
            and self.value("detail.scheduler.sample_rank") == 2
            and not set(renorms) - RENORMS
            and (not renorms or self.value("detail.cfg.epsilon") is not None)
        )

    def _always(self) -> bool:
        """Whether guidance applies at every step: without an interval, or with one never set that covers all steps."""
        interval = self.value("answers.cfg.interval")
        if interval is None:
            return True
        fixed = self.value("detail.cfg.interval_parameter") is None
        return fixed and self.value("detail.cfg.interval_rule") == WHOLE_RULE and list(interval) == [0.0, 1.0]
