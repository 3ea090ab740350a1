"""Facts, preset and flags become a spec: every module of ``sections/`` fills one section."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from scaffold.spec.derived import digests
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.preset import Preset, find_preset, reading_preset
from scaffold.spec.section import Section, Sources
from scaffold.spec.supported import refuse_unsupported
from scaffold.team import PACKAGED, Team

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.inspect.report import Report
    from scaffold.render.names import Names
    from scaffold.target import ContractProfile

SECTIONS = "scaffold.spec.sections"


class SectionModule(Protocol):
    """What a module of ``sections/`` offers; its name is the section's, ``ORDER`` its place."""

    ORDER: int

    @staticmethod
    def fill(section: Section) -> None:
        """Put the values of the section."""


@dataclass(frozen=True)
class SpecRequest:
    """What ``new`` was asked for; without ``headers`` the preset's manifest serves, the team's presets go first."""

    report: Report
    names: Names
    profile: ContractProfile
    headers: CheckpointHeaders | None = None
    date: str | None = None
    team: Team = PACKAGED

    @property
    def preset(self) -> Preset:
        """The preset that counts.

        Raises:
            ScaffoldError: one of the team is none.
        """
        return find_preset(self.names.model, self.report.value("detail.pipeline.registry_key"), self.team)


def build_spec(request: SpecRequest, *, until: str | None = None) -> IntegrationSpec:
    """Return the spec of an integration; with ``until``, only its sections up to that one.

    Raises:
        ScaffoldError: neither checkpoint nor preset gives headers, or the checkpoint lacks what the pipeline loads.
        RefusedError: something that no template can leave open is unknown.
    """
    refuse_unsupported(request.report)
    sources = _sources(request)
    sections: dict[str, dict[str, Any]] = {}
    provenance: dict[str, str] = {}
    for name, module in _modules():
        section = Section(name, sources, sections)
        with reading_preset(sources.preset, name):
            module.fill(section)
        if not section.values and getattr(module, "OPTIONAL", False):
            continue
        sections[name] = section.values
        provenance |= section.provenance
        if name == until:
            break
    record = sources.preset.record
    return IntegrationSpec(sections, provenance, digests(sections), overrides=record)


def _sources(request: SpecRequest) -> Sources:
    from scaffold.errors import ScaffoldError

    preset = request.preset
    headers, origin = request.headers, "checkpoint headers"
    configs = headers.configs if headers is not None else preset.configs
    if headers is None:
        headers, origin = preset.headers(), f"manifest {preset.manifest}"
        if headers is None:
            raise ScaffoldError(
                f"no checkpoint is known for {request.names.model}", hint="name one with --checkpoint DIR"
            )
    return Sources(
        request.report,
        headers,
        origin,
        configs,
        preset,
        request.profile,
        request.names,
        request.date,
        request.headers is not None,
    )


def _modules() -> list[tuple[str, SectionModule]]:
    names = [info.name for info in pkgutil.iter_modules(importlib.import_module(SECTIONS).__path__)]
    found = [(name, cast("SectionModule", importlib.import_module(f"{SECTIONS}.{name}"))) for name in names]
    return sorted(found, key=lambda entry: entry[1].ORDER)
