"""What the facts establish of a pipeline, as far as a partial package uses it."""

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
        """Whether the noise levels are known: which scheduler makes them, or how the loop computes them."""
        return noise_levels(self)["kind"] is not None

    @property
    def sign(self) -> int | None:
        """Sign of the velocity d x / d sigma over the denoiser's output; None where it is not known that it is one."""
        sign = self.value("detail.prediction.sign")
        return sign if sign in (1, -1) else None

    @property
    def guidance(self) -> bool:
        """Whether formula and scale of the guidance are known, and nothing else takes part in it."""
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
        """Whether guidance acts at every step: there is no interval, or nobody sets it and it is the whole range."""
        interval = self.value("answers.cfg.interval")
        if interval is None:
            return True
        fixed = self.value("detail.cfg.interval_parameter") is None
        return fixed and self.value("detail.cfg.interval_rule") == WHOLE_RULE and list(interval) == [0.0, 1.0]
