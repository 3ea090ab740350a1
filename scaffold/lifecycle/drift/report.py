"""The result of a comparison, and its stable JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.lifecycle.drift.consequences import CONSEQUENCES

if TYPE_CHECKING:
    from scaffold.inspect.facts import Evidence
    from scaffold.lifecycle.drift.facts import FactChange
    from scaffold.lifecycle.drift.hunks import Hunk
    from scaffold.lifecycle.drift.resting import Resting
    from scaffold.lifecycle.drift.surface import SurfaceChange

SCHEMA = 1


@dataclass(frozen=True)
class FactDrift:
    """A changed fact and what rests on it; ``resting`` is None where nothing could be rendered to find out."""

    change: FactChange
    resting: Resting | None

    @property
    def effect(self) -> str | None:
        """What breaks, in one sentence; None where nothing is known to."""
        if self.resting is not None and self.resting.refused is not None:
            return f"nothing can be rendered any more: {self.resting.refused}"
        return CONSEQUENCES.get(self.change.name)

    @property
    def matters(self) -> bool:
        """Whether a rendered line rests on the fact, or its new value cannot be rendered."""
        return self.resting is not None and bool(self.resting.hunks or self.resting.refused or self.resting.kept)


@dataclass(frozen=True)
class Drift:
    """What changed between two versions.

    Attributes:
        pipeline: as the user named it.
        before: version, or what else names the source.
        after: the same of the newer one.
        package: path of the package that was looked at, None where none was.
        follow: what takes the package to the newer version.
        gone: why the newer version has no such pipeline; None where it has.
        facts: one for each fact that changed.
        together: lines that change only when several facts do.
        ported: lines that change because the code changed that they are ported from.
        surface: what the package takes from upstream and does not find unchanged.
        rendering: why rendered lines are not known; None where they are.
    """

    pipeline: str
    before: str
    after: str
    package: str | None
    follow: str
    gone: str | None
    facts: tuple[FactDrift, ...]
    together: tuple[Hunk, ...]
    ported: tuple[Hunk, ...]
    surface: tuple[SurfaceChange, ...]
    rendering: str | None

    @property
    def affected(self) -> bool | None:
        """Whether the package, or what `new` renders, must change; None where that is not known."""
        lines = self.together or self.ported or any(fact.matters for fact in self.facts)
        if self.gone is not None or self.surface or lines:
            return True
        return False if self.rendering is None else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON: every key always there, unknown values null."""
        return {
            "schema": SCHEMA,
            "pipeline": self.pipeline,
            "from": self.before,
            "to": self.after,
            "package": self.package,
            "affected": self.affected,
            "gone": self.gone,
            "rendering": self.rendering,
            "facts": [_fact(fact) for fact in self.facts],
            "together": [_hunk(hunk) for hunk in self.together],
            "ported": [_hunk(hunk) for hunk in self.ported],
            "surface": [_surface(change) for change in self.surface],
        }


def _fact(fact: FactDrift) -> dict[str, Any]:
    change, resting = fact.change, fact.resting
    return {
        "fact": change.name,
        "before": change.before.value,
        "after": change.after.value,
        "confidence": {"before": change.before.confidence, "after": change.after.confidence},
        "evidence": {"before": _places(change.before.evidence), "after": _places(change.after.evidence)},
        "spec": list(resting.keys) if resting is not None else None,
        "kept": list(resting.kept) if resting is not None else None,
        "refused": resting.refused if resting is not None else None,
        "lines": [_hunk(hunk) for hunk in resting.hunks] if resting is not None else None,
        "effect": fact.effect,
    }


def _hunk(hunk: Hunk) -> dict[str, Any]:
    return {
        "file": hunk.file,
        "line": hunk.line,
        "before": list(hunk.before),
        "after": list(hunk.after),
        "edited": hunk.edited,
    }


def _surface(change: SurfaceChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "file": change.file,
        "line": change.line,
        "before": change.before.text if change.before else None,
        "after": change.after.text if change.after else None,
        "evidence": {
            "before": _places([change.before.place] if change.before and change.before.place else []),
            "after": _places([change.after.place] if change.after and change.after.place else []),
        },
        "effect": change.effect,
    }


def _places(evidence: tuple[Evidence, ...] | list[Evidence]) -> list[dict[str, Any]]:
    return [{"file": place.file, "line": place.line} for place in evidence]
