"""``omni-scaffold drift``: compares two versions, for a package or for what ``new`` would render."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files import formula
from scaffold.files.git import versions
from scaffold.files.layout import INSTALLED
from scaffold.files.reading import expanded, read_text
from scaffold.files.resources import RUNTIME, installed_runtime
from scaffold.grade import compose, is_ported
from scaffold.grade.origin import refuse_other_code
from scaffold.inspect import inspect_pipeline
from scaffold.lifecycle.derive import derive
from scaffold.lifecycle.drift.dependents import Dependents, Rendering
from scaffold.lifecycle.drift.facts import FactChange, changed_facts, executed_changes
from scaffold.lifecycle.drift.hunks import Hunk, hunks, on_disk
from scaffold.lifecycle.drift.names import Names
from scaffold.lifecycle.drift.report import Drift, FactDrift
from scaffold.lifecycle.drift.surface import surface_changes
from scaffold.lifecycle.drift.uses import uses
from scaffold.lifecycle.next_spec import located, pipeline_of, recorded_version, successor
from scaffold.lifecycle.overrides import require_overrides
from scaffold.lifecycle.package import ScaffoldedPackage, recover_around, specs_below
from scaffold.new import refuse, render_files
from scaffold.plan.output import states
from scaffold.render import derive_names
from scaffold.spec import SpecRequest, find_preset
from scaffold.spec.lock import SPEC_NAME
from scaffold.target import default_profile, profiles
from scaffold.terminal.progress import progress_bar, step
from scaffold.upstream import UpstreamSource, locate
from scaffold.upstream.locate import NEWEST
from scaffold.upstream.versions import fits

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.inspect import Report
    from scaffold.lifecycle.drift.dependents import Rendering
    from scaffold.lifecycle.drift.surface import SurfaceChange
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.upstream import UpstreamSource


@dataclass(frozen=True)
class DriftRequest:
    """The command line of ``drift``; the target is a package's folder or a pipeline."""

    target: str
    before: str | None
    after: str
    package: str | None = None


def compare(request: DriftRequest) -> Drift:
    """Compare a pipeline in two versions.

    Raises:
        ScaffoldError: a version is not available, the older one has no such pipeline, or the package integrates another
            pipeline.
    """
    named = _named_package(request)

    if named is not None:
        recover_around(named, dry=True)
    package = ScaffoldedPackage.open(named) if named is not None else None
    pipeline = request.target if package is None or named != request.target else pipeline_of(package.spec)
    task = package.spec.value("upstream.task") if package is not None else None
    old_source = _older(request, package)
    new_source = successor(package.spec, request.after) if package is not None else locate(request.after)
    with step(f"reading vllm-omni {old_source.label}"):
        before = inspect_pipeline(old_source, pipeline, task=task)
    if package is not None:
        _refuse_other(package, before, pipeline)
        _refuse_other_version(package, old_source)
    with step(f"reading vllm-omni {new_source.label}"):
        try:
            after = inspect_pipeline(new_source, pipeline, task=task)
        except ScaffoldError as error:
            return _gone(pipeline, package, old_source, new_source, error)
    changes = changed_facts(before, after)
    with step("rendering with the old and the new answers"):
        rendering, why = _rendering(package, before, old_source)
        facts, together = _dependents(rendering, changes)
        ported: tuple[Hunk, ...] = ()
        if package is not None and rendering is not None and is_ported(package.spec):
            ported, why = ported_hunks(package, rendering, after, new_source)
    facts = [fact for fact in facts if not _unanswered(fact)]
    disk = _python_files(package) if package is not None else None
    if rendering is not None and disk is not None:
        facts = [
            replace(fact, dependents=replace(own, hunks=on_disk(own.hunks, rendering.files, disk)))
            if (own := fact.dependents) is not None
            else fact
            for fact in facts
        ]
        together, ported = (on_disk(found, rendering.files, disk) for found in (together, ported))
    texts = (
        disk
        if disk is not None
        else {path: file.content for path, file in rendering.files.items()}
        if rendering
        else {}
    )
    return Drift(
        pipeline,
        old_source.label,
        new_source.label,
        package.path if package is not None else None,
        _follow(request, package, new_source),
        None,
        tuple(facts),
        together,
        ported,
        _surface(texts, old_source, new_source, pipeline),
        why,
        _formula(package) if package is not None else (),
        executed_changes(package.spec, old_source, new_source) if package is not None else (),
    )


def _formula(package: ScaffoldedPackage) -> tuple[str, ...]:
    """Return in which lines the last rollout's formula differs from the newest other one that git has."""
    now = formula.recorded(package.root / package.path)
    if now is None:
        return ()
    kept = versions(package.root, f"{package.path}/{formula.NAME}")
    earlier = (formula.lines_in(text.decode("utf-8", "replace")) for text in kept)
    before = next((lines for lines in earlier if lines != now), None)
    return tuple(formula.differences(before, now, versions=True))


def _named_package(request: DriftRequest) -> str | None:
    """Return the target if it is a package, else the value of ``--package``."""
    if not request.target.strip():
        raise ScaffoldError("the package or pipeline is empty", hint="name a package's folder or a pipeline")
    path = expanded(request.target)
    if not (path / SPEC_NAME).is_file() and not any(specs_below(path)):
        # A folder may be named like a pipeline, but no pipeline's name contains a slash.
        if path.name != SPEC_NAME and "/" not in request.target and request.target not in (".", ".."):
            return request.package
    if request.package is not None:
        raise ScaffoldError(f"{request.target} is a package", hint="leave out --package, or name the pipeline")
    return request.target


def _follow(request: DriftRequest, package: ScaffoldedPackage | None, new: UpstreamSource) -> str:
    """Return how to update a package to the newer version; a checkout that pins another must change its pin first."""
    folder = package.from_here if package is not None else "PACKAGE"
    pin = package.checkout.asked if package is not None and package.checkout is not None else None
    if fits(pin, new.version) is not False:
        named = new.label if request.after == NEWEST else request.after
        return f"`omni-scaffold update {folder} --vllm-omni {named}`"
    return f"pin vllm-omni {new.version} in place of {pin}, then run `omni-scaffold update {folder}`"


def _gone(
    pipeline: str,
    package: ScaffoldedPackage | None,
    old: UpstreamSource,
    new: UpstreamSource,
    error: ScaffoldError,
) -> Drift:
    path = package.path if package is not None else None
    return Drift(pipeline, old.label, new.label, path, "", error.message, (), (), (), (), "the pipeline is gone")


def _refuse_other(package: ScaffoldedPackage, report: Report, pipeline: str) -> None:
    mine = str(package.spec.value("upstream.class"))
    if mine != report.upstream.pipeline:
        raise ScaffoldError(
            f"{package.path} integrates {mine}, and {pipeline} is {report.upstream.pipeline}",
            hint="name the package's own pipeline",
        )


def _older(request: DriftRequest, package: ScaffoldedPackage | None) -> UpstreamSource:
    """Return the older version: the requested one, else the one the package was rendered from."""
    recorded = recorded_version(package.spec) if package is not None else None
    if request.before is None and recorded is None:
        raise ScaffoldError("say which version is the older one", hint="give --from, or a package, which knows its own")
    return located(request.before, recorded)


def _refuse_other_version(package: ScaffoldedPackage, source: UpstreamSource) -> None:
    """Refuse a package of another version than the older one: its differences would look like a person's edits."""
    recorded = recorded_version(package.spec)
    if None not in (recorded, source.version) and recorded != source.version:
        raise ScaffoldError(
            f"{package.path} was rendered from vllm-omni {recorded}, not {source.version}",
            hint="leave out --from, or compare the pipeline without the package",
        )
    refuse_other_code(package.spec, source, "--from")


def _rendering(
    package: ScaffoldedPackage | None, report: Report, source: UpstreamSource
) -> tuple[Rendering | None, str | None]:
    """Return the package's rendering, else the one `new` would make; if there is neither, the reason."""
    try:
        if package is not None:
            spec, profile = package.spec, package.profile
            team = package.team
            require_overrides(package)
            first = derive(spec, report, profile, source, team=team)
            files = render_files(spec, [], first.port)

            def again(other: Report) -> Graded:
                return derive(spec, other, profile, source, first, team)

            return Rendering(spec, files, again, report), None
        made = _fresh(report, source).spec
        return Rendering(made, render_files(made, []), lambda other: _fresh(other, source), report), None
    except ScaffoldError as error:
        return None, error.line


def _fresh(report: Report, source: UpstreamSource) -> Graded:
    """Return the spec that `new` makes from a report with the pipeline's own preset."""
    refuse(report)
    preset = find_preset("", report.fact("detail.pipeline.registry_key").value)
    if preset.manifest is None:
        raise ScaffoldError("no preset has the checkpoint of this pipeline", hint="name a package in its place")
    version = report.upstream.version
    profile = next((profile for profile in profiles() if profile.vllm_omni == version), default_profile())
    return compose(SpecRequest(report, derive_names(preset.name), profile), source)


def _dependents(
    rendering: Rendering | None, changes: tuple[FactChange, ...]
) -> tuple[list[FactDrift], tuple[Hunk, ...]]:
    """Return what depends on each fact alone, and the lines that change only if several facts change together."""
    if rendering is None:
        return [FactDrift(change, None) for change in changes], ()
    facts = []
    with progress_bar("facts") as progress:
        for number, change in enumerate(changes, start=1):
            facts.append(FactDrift(change, rendering.dependents_of((change,))))
            progress(number, len(changes))
    whole = rendering.dependents_of(changes) if len(changes) > 1 else Dependents()
    alone = {
        (hunk.file, line)
        for fact in facts
        for hunk in (fact.dependents.hunks if fact.dependents is not None else ())
        for line in _span(hunk)
    }
    together = tuple(hunk for hunk in whole.hunks if not alone.intersection((hunk.file, line) for line in _span(hunk)))
    return facts, together


def _unanswered(fact: FactDrift) -> bool:
    """Whether one version has neither a value nor a place for the fact, and no rendered line depends on it."""
    sides = (fact.change.before, fact.change.after)
    silent = any(side.confidence == "unknown" and not side.evidence for side in sides)
    return silent and fact.dependents is not None and fact.dependents == Dependents()


def _span(hunk: Hunk) -> range:
    return range(hunk.line, hunk.line + max(1, len(hunk.before)))


def _python_files(package: ScaffoldedPackage) -> Mapping[str, str]:
    """Return the text of the package's recorded files, of other Python files in its folder, of an installed runtime."""
    folder = package.root / package.path
    paths = {*package.spec.files, *(file.relative_to(package.root).as_posix() for file in folder.rglob("*.py"))}
    found = {}
    for path, state in states(package.root, sorted(paths)).items():
        if state is not None:
            found[path] = state.content.decode("utf-8", "replace")
            _refuse_unreadable(path, found[path])
    if package.profile.runtime == INSTALLED:
        found |= {f"{RUNTIME}/{file.name}": read_text(file) for file in sorted(installed_runtime().glob("*.py"))}
    return found


def _refuse_unreadable(path: str, text: str) -> None:
    """Refuse a file that does not parse: what it uses of vllm-omni is unknown, which is not the same as nothing."""
    if not path.endswith(".py"):
        return
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ScaffoldError(
            f"{path}: does not parse as Python, so what it takes from vllm-omni is unknown: {error}",
            hint="mend it first",
        ) from None


def _surface(
    texts: Mapping[str, str], old: UpstreamSource, new: UpstreamSource, pipeline: str
) -> tuple[SurfaceChange, ...]:
    return surface_changes(uses(texts), Names(old, pipeline), Names(new, pipeline))


def ported_hunks(
    package: ScaffoldedPackage, rendering: Rendering, report: Report, source: UpstreamSource
) -> tuple[tuple[Hunk, ...], str | None]:
    """Return how a package differs if the same spec is rendered with the newer code, or why that is unknown.

    Args:
        package: a ported package.
        rendering: what its spec renders with the older code.
        report: the pipeline in the newer version.
        source: the newer version.
    """
    try:
        named = _labelled(source, rendering.report)
        port = derive(package.spec, report, package.profile, named, team=package.team).port
        if port is None:
            return (), f"vllm-omni {source.label} has no denoiser of this pipeline that can be ported"
        files = render_files(package.spec, [], port)
    except ScaffoldError as error:
        return (), error.line
    return hunks(rendering.files, files), None


def _labelled(source: UpstreamSource, before: Report) -> UpstreamSource:
    """Return the newer code labelled with the older version: the version number, and its wrapping, is no change."""
    named = copy(source)
    named.version = before.upstream.version or before.upstream.label
    return named
