"""Finds the rendered lines that depend on a fact, by rendering with the old and with the new value and comparing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.lifecycle.drift.facts import FactChange, with_facts
from scaffold.lifecycle.drift.hunks import Hunk, hunks
from scaffold.lifecycle.merge_spec import changed_keys, merge_specs
from scaffold.new import render_files

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.inspect import Report
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec


@dataclass(frozen=True)
class Dependents:
    """What depends on one or more facts.

    Attributes:
        keys: values of the spec that change.
        hunks: rendered lines that change.
        refused: why nothing can be rendered with the new value; None if it can.
        kept: values a person set in ``scaffold.toml``, which therefore stay.
    """

    keys: tuple[str, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    refused: str | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rendering:
    """A rendered spec, and how specs are made from reports.

    Attributes:
        spec: the recorded spec, or the one `new` would make from the older version.
        files: what it renders.
        derive: makes the spec of a report, without a person's edits; for a ported package, also the port.
        report: the pipeline in the older version.
    """

    spec: IntegrationSpec
    files: Mapping[str, RenderedFile]
    derive: Callable[[Report], Graded]
    report: Report

    @cached_property
    def _derived(self) -> IntegrationSpec:
        return self.derive(self.report).spec

    def dependents_of(self, changes: tuple[FactChange, ...]) -> Dependents:
        """Return what changes if these facts of the older report take their new values."""
        try:
            graded = self.derive(with_facts(self.report, changes))
            merged = merge_specs(self.spec, self._derived, graded.spec, upstream_only=True)
            spec = _quiet(merged.spec, self.spec)
            kept = tuple(conflict.key for conflict in merged.conflicts)
            keys = changed_keys(self.spec, spec)
            if not keys:
                return Dependents(kept=kept)
            return Dependents(keys, hunks(self.files, render_files(spec, [], graded.port)), kept=kept)
        except ScaffoldError as error:
            return Dependents(refused=error.line)


def _quiet(spec: IntegrationSpec, before: IntegrationSpec) -> IntegrationSpec:
    """Return the spec with the older places, version and target, which are not facts."""
    sections = {name: dict(values) for name, values in spec.sections.items()}
    for name in ("tool", "target"):
        if name in before.sections:
            sections[name] = dict(before.sections[name])
    old = before.sections.get("upstream", {})
    for key in [key for key in sections.get("upstream", {}) if key.endswith("location") or key == "version"]:
        sections["upstream"][key] = old.get(key)
    return replace(spec, sections=sections)
