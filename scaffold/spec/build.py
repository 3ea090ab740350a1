"""Facts, preset and flags become a spec, section by section: the one builder of composed and of ported packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
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

Fill = Callable[[Section], None]


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


@dataclass
class SpecBuilder:
    """A spec that grows by one section at a time; later sections read earlier ones."""

    sources: Sources
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)

    def fill(self, name: str, fill: Fill) -> Section:
        """Add a section; what it lacks is the caller's to raise or to leave to a person.

        Raises:
            PresetError: the preset's values of the section cannot be used.
        """
        section = Section(name, self.sources, self.sections)
        with reading_preset(self.sources.preset, name):
            fill(section)
        self.sections[name] = section.values
        self.provenance |= section.provenance
        return section

    def fill_with(self, fill: Fill) -> Section:
        """Add the section that a function of ``sections`` fills, ``fill_NAME``."""
        return self.fill(fill.__name__.removeprefix("fill_"), fill)

    def spec(self) -> IntegrationSpec:
        """Return the spec, with the provenance of the values that are still there."""
        provenance = {
            path: origin
            for path, origin in self.provenance.items()
            if path.split(".")[1] in self.sections.get(path.partition(".")[0], {})
        }
        record = self.sources.preset.record
        return IntegrationSpec(self.sections, provenance, digests(self.sections), overrides=record)


def build_spec(request: SpecRequest, *, until: str | None = None) -> IntegrationSpec:
    """Return the spec of a composed package; with ``until``, only its sections up to that one.

    Raises:
        ScaffoldError: neither checkpoint nor preset gives headers, or the checkpoint lacks what the pipeline loads.
        RefusedError: something that no template can leave open is unknown.
    """
    refuse_unsupported(request.report)
    builder = SpecBuilder(_sources(request))
    for fill in _composed():
        section = builder.fill_with(fill)
        if section.lacking:
            raise section.lacking[0]
        if section.name == until:
            break
    if request.report.task is None:
        builder.sections.pop("media", None)
    return builder.spec()


def _composed() -> tuple[Fill, ...]:
    """Return the sections of a composed package: each reads only those before it."""
    from scaffold.spec.sections import architecture, checkpoint, package, recipe, request, sampling, training, upstream

    return (
        package.fill_tool,
        package.fill_target,
        upstream.fill_upstream,
        request.fill_tokens,
        sampling.fill_latents,
        architecture.fill_architecture,
        sampling.fill_schedule,
        sampling.fill_cfg,
        request.fill_prompt,
        package.fill_names,
        checkpoint.fill_checkpoint,
        training.fill_lora,
        package.fill_deploy,
        recipe.fill_recipe,
        training.fill_tiny,
        request.fill_media,
        package.fill_docs,
    )


def _sources(request: SpecRequest) -> Sources:
    """Return what the sections of a composed package draw on: without a checkpoint, the preset's manifest.

    Raises:
        ScaffoldError: the preset has no manifest either.
    """
    preset = request.preset
    if request.headers is not None:
        return sources_of(request, request.headers, "checkpoint headers", request.headers.configs)
    headers = preset.headers()
    if headers is None:
        raise ScaffoldError(f"no checkpoint is known for {request.names.model}", hint="name one with --checkpoint DIR")
    return sources_of(request, headers, f"manifest {preset.manifest}", preset.configs)


def sources_of(request: SpecRequest, headers: CheckpointHeaders, origin: str, configs: Mapping[str, Any]) -> Sources:
    """Return what sections draw on, with the headers that serve and where they come from."""
    return Sources(
        request.report,
        headers,
        origin,
        configs,
        request.preset,
        request.profile,
        request.names,
        request.date,
        request.headers is not None,
    )
