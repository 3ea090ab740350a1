"""The spec from which a package is rendered next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scaffold import __version__
from scaffold.errors import ConflictError, ScaffoldError
from scaffold.grade import is_ported
from scaffold.grade.origin import refuse_other_code
from scaffold.grade.rendering import validate_ported
from scaffold.inspect import inspect_pipeline
from scaffold.lifecycle.derive import derive
from scaffold.lifecycle.merge_spec import merge_specs
from scaffold.new.version_match import ALLOW, is_allowed, other_pin, with_pin
from scaffold.spec.derived import digests
from scaffold.spec.validate import validate
from scaffold.terminal.progress import step
from scaffold.upstream import locate
from scaffold.upstream.builds import base_of
from scaffold.upstream.identity import identified
from scaffold.upstream.locate import NEWEST, locate_version
from scaffold.upstream.own_pipeline import beside_again
from scaffold.upstream.versions import is_older

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.port import Port
    from scaffold.spec import IntegrationSpec
    from scaffold.upstream import UpstreamSource


@dataclass(frozen=True)
class NextSpec:
    """The spec, notes for the user on how it was made, and the sources it was made from, if any.

    Attributes:
        sources: the older and the newer version.
        port: the denoiser of a ported package, from the newer version.
    """

    spec: IntegrationSpec
    notes: tuple[str, ...]
    sources: tuple[UpstreamSource, UpstreamSource] | None = None
    port: Port | None = None


def edited_spec(package: ScaffoldedPackage, *, allowed: bool = False) -> NextSpec:
    """Return ``scaffold.toml`` as it is on disk, labelled with this version of the tool.

    Args:
        package: what is rendered again.
        allowed: the spec may be for another vllm-omni than the checkout pins.

    Raises:
        ScaffoldError: a value cannot be rendered.
        ConflictError: the checkout pins another version, and that is not allowed.
    """
    if is_ported(package.spec):
        validate_ported(package.spec, package.spec_path)
    else:
        validate(package.spec, package.spec_path)
    notes: list[str] = []
    pin = _other_pin(package, package.spec.value("upstream.version"), allowed, notes)
    sections = {**package.spec.sections, "tool": {**package.spec.sections.get("tool", {}), "version": __version__}}
    derived = {**package.spec.derived, **digests({"tool": sections["tool"]})}
    return NextSpec(with_pin(replace(package.spec, sections=sections, derived=derived), pin), tuple(notes))


def upstream_spec(
    package: ScaffoldedPackage, vllm_omni: str | None, base: str | None, *, force: bool, allowed: bool = False
) -> NextSpec:
    """Return the recorded spec with what changed between two versions of vllm-omni.

    Args:
        package: what is updated.
        vllm_omni: version, wheel or folder to go to; by default the checkout's pin, else the recorded version.
        base: the version, wheel or folder the package was rendered from, if the recorded one is not available.
        force: a value that a person edited stays although it changed upstream.
        allowed: the version may be another than the checkout pins.

    Raises:
        ScaffoldError: a version is not available.
        RefusedError: the new version cannot be integrated this way.
        ConflictError: a person edited a value that also changed upstream, or the version is older without being named,
            or is not the one the checkout pins.
    """
    pin = package.checkout.vllm_omni_pin if package.checkout is not None else None
    recorded = recorded_version(package.spec)
    if vllm_omni is None and pin is not None:
        _refuse_older(package, recorded, pin, f"the checkout pins {pin}")
    new_source = successor(package.spec, vllm_omni or pin or base)
    if vllm_omni == NEWEST:
        _refuse_older(package, recorded, new_source.version, f"the newest release is {new_source.version}")
    notes: list[str] = []
    other = _other_pin(package, new_source.version, allowed, notes)
    new_report = read(package.spec, new_source)
    old_source = recorded_source(package.spec, base)
    old_report = read(package.spec, old_source)
    profile = package.checkout.profile if package.checkout is not None else package.profile
    old = derive(package.spec, old_report, package.profile, old_source, team=package.team)
    new = derive(package.spec, new_report, profile, new_source, team=package.team)
    merged = merge_specs(package.spec, old.spec, new.spec)
    if merged.conflicts and not force:
        listed = "; ".join(map(str, merged.conflicts))
        raise ConflictError(
            f"{package.spec_path}: edited here and changed since: {listed}; nothing was written",
            hint="set the new value there, or keep yours with --force",
        )
    notes += [f"{package.spec_path}: {conflict.key} keeps your value" for conflict in merged.conflicts]
    if merged.followed:
        who = "this version of omni-scaffold" + (", or the preset," if merged.spec.overrides else "")
        notes.append(f"{who} changes {', '.join(merged.followed)}")
    return NextSpec(with_pin(merged.spec, other), tuple(notes), (old_source, new_source), new.port)


def _refuse_older(package: ScaffoldedPackage, recorded: str | None, version: str | None, why: str) -> None:
    """Refuse an older version that the user did not name."""
    older = is_older(version, recorded)
    if older is False:
        return
    told = "which is older" if older else "and which of the two is older is not known"
    stay = ""
    if recorded is not None:
        more = "" if is_allowed(package.spec, package.checkout, recorded) else f" {ALLOW}"
        stay = f", or --vllm-omni {recorded}{more} to stay"
    raise ConflictError(
        f"{package.spec_path} is for vllm-omni {recorded or 'of a folder without a version'} and {why}, {told}; "
        "nothing was written",
        hint=f"name the version: --vllm-omni {version} to go {'back' if older else 'there'}{stay}",
    )


def _other_pin(package: ScaffoldedPackage, version: str | None, allowed: bool, notes: list[str]) -> str | None:
    allowed = allowed or is_allowed(package.spec, package.checkout, version)
    return other_pin(package.checkout, version, allowed=allowed, notes=notes)


def recorded_version(spec: IntegrationSpec) -> str | None:
    """Return the version a spec was made from, or None if that was a folder without a version."""
    version = str(spec.value("upstream.version"))
    return None if version.startswith("from ") else version


def successor(spec: IntegrationSpec, selector: str | None) -> UpstreamSource:
    """Return the version to update a package to; a pipeline outside vllm-omni is read as it is installed now.

    Args:
        spec: the package's.
        selector: version, wheel or folder; by default the recorded version, or the release in it.

    Raises:
        ScaffoldError: it cannot be had.
    """
    recorded = recorded_version(spec)
    if not is_beside(spec) or recorded is None:
        return located(selector, recorded)
    base = located(selector, base_of(recorded))
    return identified(beside_again(base, pipeline_of(spec), locate_version(recorded)))


def located(selector: str | None, recorded: str | None) -> UpstreamSource:
    """Return what the command line names, which may be a folder, else the version that a record names.

    Raises:
        ScaffoldError: it cannot be had.
    """
    return locate_version(recorded) if selector is None and recorded is not None else locate(selector)


def is_beside(spec: IntegrationSpec) -> bool:
    """Whether the pipeline is in a package other than vllm-omni."""
    return str(spec.value("upstream.module")).partition(".")[0] != "vllm_omni"


def recorded_source(spec: IntegrationSpec, base: str | None = None) -> UpstreamSource:
    """Return the version that the spec was made from.

    Raises:
        ScaffoldError: that version is not available, or its code differs from what the denoiser was ported from.
    """
    recorded = recorded_version(spec)
    if base is None and recorded is None:
        raise ScaffoldError(
            f"the package was rendered from a folder without a version ({spec.value('upstream.version')})",
            hint="name that source with --from VERSION|WHEEL|DIR",
        )
    source = located(base, recorded)
    refuse_other_code(spec, source, "--from")
    return source


def read(spec: IntegrationSpec, source: UpstreamSource) -> Report:
    """Inspect the spec's pipeline in a version.

    Raises:
        ScaffoldError: it has no such pipeline.
    """
    with step(f"reading vllm-omni {source.label}"):
        return inspect_pipeline(source, pipeline_of(spec), task=spec.value("upstream.task"))


def pipeline_of(spec: IntegrationSpec) -> str:
    """Return the pipeline as `inspect` takes it: the registry key, else ``module:Class``."""
    key = spec.value("upstream.registry_key")
    return (
        str(key) if key and not is_beside(spec) else f"{spec.value('upstream.module')}:{spec.value('upstream.class')}"
    )
