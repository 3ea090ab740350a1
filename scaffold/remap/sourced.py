"""The rules of upstream's loader for a checkpoint's keys: renames, packed parameters, skips, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint.fold import natural_key
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.inspect.report import Report

FACT = "detail.checkpoint.rules"


@dataclass(frozen=True)
class SourceRule:
    """One rule of the loader: ``op`` is ``rename``, ``stacked`` or ``skip``, ``how`` where in a key it looks.

    ``how`` is ``prefix``, ``suffix``, ``contains`` or ``equal``. ``shard`` is a packed parameter's part. ``file`` is
    relative to the folder that holds ``vllm_omni/``.
    """

    op: str
    how: str
    source: str
    target: str | None = None
    shard: str | int | None = None
    file: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.file}:{self.line}" if self.file else "an unknown place"

    def matches(self, name: str) -> bool:
        """Tell whether the rule is about a key."""
        if not self.source.strip("."):
            return False
        if self.how == "prefix":
            return name.startswith(self.source)
        if self.how == "suffix":
            return name.endswith(self.source)
        return name == self.source if self.how == "equal" else self.source in name

    def renamed(self, name: str) -> str:
        """Return what a rename makes of a key that it matches."""
        target = self.target or ""
        if self.how == "prefix":
            return target + name[len(self.source) :]
        if self.how == "suffix":
            return name[: -len(self.source)] + target
        return target if self.how == "equal" else name.replace(self.source, target)


@dataclass(frozen=True)
class SourceRules:
    """The rules of a loader in its order; without arguments, of an unknown loader."""

    rules: tuple[SourceRule, ...] = ()
    loader: str | None = None

    @classmethod
    def of(cls, report: Report) -> SourceRules:
        """Return the loader's rules from a report."""
        fact = report.facts.get(FACT)
        rows: Iterable[Mapping[str, Any]] = (fact.value if fact is not None else None) or ()
        rules = tuple(
            SourceRule(row["op"], row["how"], row["from"], row["to"], row["shard"], row["file"], row["line"])
            for row in rows
        )
        place = report.facts.get("detail.checkpoint.loader_location")
        return cls(rules, place.value if place is not None else None)

    @property
    def origin(self) -> str:
        """How rules that rest on the loader cite it."""
        return f"upstream's loader, {self.loader}" if self.loader else "upstream's loader"

    @cached_property
    def stacked(self) -> tuple[tuple[str, str, str | int], ...]:
        """Rows ``(packed parameter, part, shard)``."""
        return tuple(
            (rule.target, rule.source, rule.shard)
            for rule in self.rules
            if rule.op == "stacked" and rule.target is not None and rule.shard is not None
        )

    def upstream_name(self, name: str) -> str:
        """Return what the loader's renames make of a key, each applied once in their order."""
        for rule in self.rules:
            if rule.op == "rename" and rule.target is not None and rule.matches(name):
                name = rule.renamed(name)
        return name

    def skip(self, name: str) -> SourceRule | None:
        """Return the rule by which the loader skips a key."""
        return next((rule for rule in self.rules if rule.op == "skip" and rule.matches(name)), None)

    def refuse_skipped(self, names: Iterable[str]) -> None:
        """Refuse keys that training takes and upstream skips: the two sides would hold different weights.

        Raises:
            ScaffoldError: names the first, and the line that skips it.
        """
        for name in sorted(names, key=natural_key):
            rule = self.skip(name)
            if rule is not None:
                raise ScaffoldError(
                    f"upstream's loader skips {quoted(name)} ({rule.place}), which the training module takes",
                    hint="it is not the checkpoint of this pipeline, or the rule has to be given by hand",
                )

    def cite(self, reasons: Mapping[str, str], default: str) -> dict[str, str]:
        """Return the reasons of drops, those of skipped keys with the line that skips them."""
        cited = {}
        for name, reason in reasons.items():
            rule = self.skip(name)
            if rule is None:
                cited[name] = reason
            else:
                said = "" if reason == default else f"{reason}; "
                cited[name] = f"{said}skipped by upstream's loader ({rule.place})"
        return cited

    def unused(self, names: Iterable[str]) -> list[SourceRule]:
        """Return the rules that match none of a checkpoint's keys, renamed or not."""
        seen = {form for name in names for form in (name, self.upstream_name(name))}
        return [rule for rule in self.rules if rule.source and not any(map(rule.matches, seen))]
