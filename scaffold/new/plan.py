"""From the request to the plan: where it goes, what it is, its files; nothing is written.

`plan_new` reads from top to bottom; what it calls stands below it in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError
from scaffold.files.git import uncommitted
from scaffold.files.layout import BESIDE, CHECKOUT, PROJECT
from scaffold.files.reading import expanded
from scaffold.grade import grade_of, specify
from scaffold.grade.diffusers_spec import is_loaded
from scaffold.inspect import inspect_pipeline
from scaffold.inspect.report import LATER, TURN
from scaffold.new.loaded import loaded, weight_file_notes
from scaffold.new.own_packages import own_package_notes, released_note
from scaffold.new.package import render_package
from scaffold.new.place import with_place
from scaffold.new.recipe_options import RecipeOptions, with_options, with_reward_found
from scaffold.new.recorded import (
    dated_as_there,
    from_here,
    keep_own,
    known_digests,
    left_behind,
    package_path,
    without_local,
)
from scaffold.new.refusal import refuse
from scaffold.new.request import NewRequest, named_after_pipeline, refuse_flags, refuse_values
from scaffold.new.version_match import other_pin, with_pin
from scaffold.plan import plan_checkout, plan_output, wiring_edits
from scaffold.plan.transaction import recover_aloud
from scaffold.render import derive_names
from scaffold.render.runtime import refuse_newer
from scaffold.spec import SpecRequest, read_spec
from scaffold.target import Checkout, default_profile, profile_by_name
from scaffold.team import team_for
from scaffold.terminal.progress import step
from scaffold.upstream import locate
from scaffold.upstream.identity import identified
from scaffold.upstream.own_pipeline import with_own_pipeline

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.plan import Plan
    from scaffold.port import Port
    from scaffold.render import RenderedFile
    from scaffold.render.names import Names
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile


SCHEMA = 1


@dataclass(frozen=True)
class NewResult:
    """The plan, its basis, and notes for the user.

    ``filled`` is the result of loading the given checkpoint, or why that is unknown; None without a checkpoint.
    """

    spec: IntegrationSpec
    plan: Plan
    report: Report | None
    notes: tuple[str, ...]
    filled: str | None = None
    checkpoint: str | None = None

    @property
    def from_here(self) -> str:
        """The package's folder as the next command takes it."""
        return from_here(self.plan.root, self.package_path)

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Return the stable answer of ``new --format json``."""
        value = self.spec.value
        return {
            "schema": SCHEMA,
            "package": {"name": value("names.package"), "path": self.package_path},
            "pipeline": value("upstream.class"),
            "vllm_omni": value("upstream.version"),
            "verl_omni": value("target.profile"),
            "grade": grade_of(self.spec),
            "left": value("grade.missing") or [],
            "needs": value("grade.needs") or [],
            "checkpoint": self.filled,
            "notes": list(self.notes),
            "written": written,
            **self.plan.to_json(),
        }

    @property
    def package_path(self) -> str:
        """Path of the rendered package from the repository's root."""
        return package_path(self.spec)


def plan_new(request: NewRequest, choose: Callable[[IntegrationSpec], RecipeOptions] | None = None) -> NewResult:
    """Inspect, specify, render and plan; nothing is written.

    Args:
        request: the command line.
        choose: takes the spec and returns recipe options that replace the request's.

    Raises:
        ScaffoldError: wrong input (exit 2), a verdict that refuses (3) or a conflict found while planning (4).
    """
    notes: list[str] = []
    request = named_after_pipeline(request)
    names = derive_names(request.model)
    refuse_values(request)
    place = _place(request, notes)
    if request.spec is not None:
        found = _from_spec(request.spec, request, names, place, notes)
    else:
        found = _inspected(request, names, place, notes)
    placed = with_place(found.spec, place.profile)
    recipe = choose(placed) if choose is not None else request.recipe
    spec = with_options(placed, with_reward_found(recipe, place.root))
    if request.date is None and request.spec is None:
        spec = dated_as_there(spec, place.root)
    with step("rendering"):
        files, spec = render_package(with_pin(spec, found.pin), notes, place.checkout_root, found.port)
    plan = keep_own(_plan(request, place, files, spec, notes), spec, request)
    filled = None
    if request.checkpoint is not None:
        with step("loading the checkpoint's headers"):
            key = str(spec.value("upstream.registry_key"))
            filled = loaded(files, package_path(spec), key, request.checkpoint, notes)
    if place.checkout is not None:
        notes += own_package_notes(place.root, spec, place.profile)
        notes += uncommitted_notes(plan)
    else:
        notes += released_note(spec, place.profile)
    return NewResult(spec, plan, found.report, tuple(notes), filled, request.checkpoint)


@dataclass(frozen=True)
class _Place:
    """Where the integration goes: a checkout of verl-omni, or a folder of its own for a release of it."""

    root: Path
    profile: ContractProfile
    checkout: Checkout | None

    @property
    def checkout_root(self) -> Path | None:
        return self.root if self.checkout is not None else None


def _place(request: NewRequest, notes: list[str]) -> _Place:
    """Open the checkout or the folder, and complete what a killed run began there."""
    if request.out is not None and request.verl_omni is not None:
        raise ScaffoldError("--out and --verl-omni exclude each other", hint="say where the integration goes")
    checkout_path = request.verl_omni
    if request.out is None and checkout_path is None:
        above = Checkout.above(Path.cwd())
        if above is None:
            hint = "give --out DIR or --verl-omni CHECKOUT, or run this inside of a checkout"
            raise ScaffoldError("say where the integration goes", hint=hint)
        checkout_path = str(above.root)
    if checkout_path is not None and request.patch:
        raise ScaffoldError("--patch goes with --out", hint="a checkout is edited in place")
    if request.out is not None and not request.patch and request.runtime == BESIDE:
        raise ScaffoldError("--runtime beside goes with a checkout", hint="a project depends on the installed runtime")
    if checkout_path is not None and request.profile is not None:
        raise ScaffoldError("--profile goes with --out", hint="a checkout says itself which release it is")
    recover_aloud(expanded(checkout_path or request.out or "."), dry=request.dry)
    if checkout_path is None:
        profile = profile_by_name(request.profile) if request.profile is not None else default_profile()
        layout = CHECKOUT if request.patch else PROJECT
        place = _Place(expanded(request.out or "."), profile.placed(layout, request.runtime), None)
    else:
        checkout = Checkout.open(checkout_path)
        notes += checkout.notes
        place = _Place(expanded(checkout.root), checkout.profile.placed(CHECKOUT, request.runtime), checkout)
    refuse_newer(place.root)
    return place


@dataclass(frozen=True)
class _Found:
    """What is rendered, with the report that it rests on and the port that it needs; both None of a spec's file.

    ``pin`` is what the checkout pins where that is another version, and that is allowed.
    """

    spec: IntegrationSpec
    pin: str | None
    report: Report | None = None
    port: Port | None = None


def _from_spec(path: Path, request: NewRequest, names: Names, place: _Place, notes: list[str]) -> _Found:
    """Take a ``scaffold.toml`` as it is; it was made for one release of verl-omni."""
    refuse_flags(request)
    spec = read_spec(path).spec
    if spec.value("names.model") != names.model:
        raise ScaffoldError(f"{path} is the spec of {spec.value('names.model')!r}, not of {names.model!r}")
    written_for = str(spec.value("target.profile"))
    if place.checkout is not None and written_for != place.profile.name:
        raise ScaffoldError(
            f"{path} was made for verl-omni {written_for}, the checkout is {place.profile.name}",
            hint="run `new` without --spec for this checkout",
        )
    return _Found(spec, _allowed_pin(request, place, spec.value("upstream.version"), notes))


def _inspected(request: NewRequest, names: Names, place: _Place, notes: list[str]) -> _Found:
    """Read the pipeline and the checkpoint's headers, and make a spec of them."""
    profile = place.profile
    wanted = place.checkout.vllm_omni_pin if place.checkout else (profile.vllm_omni if request.profile else None)
    team = team_for(place.root, request.preset, packaged=request.packaged)
    located = locate(request.vllm_omni, checkout_pin=wanted)
    source, pipeline = with_own_pipeline(located, request.pipeline or request.model)
    if request.vllm_omni is not None or len(source.packages) > 1:
        source = identified(source)
    pin = _allowed_pin(request, place, source.version, notes)
    headers = read_checkpoint(request.checkpoint) if request.checkpoint is not None else None
    with step(f"reading vllm-omni {source.label}"):
        report = inspect_pipeline(source, pipeline, headers, request.task)
    refuse(report)
    notes += weight_file_notes(report, headers) if headers is not None else []
    graded = specify(SpecRequest(report, names, profile, headers, request.date, team), source)
    if is_loaded(report):
        notes.append(f"{report.verdict['reason']}: no denoiser is ported, training has diffusers' own class")
    notes += report.fact(TURN).value or []
    later = report.fact(LATER).value
    notes += [f"{later}: where diffusers loads the checkpoint, its path is the easier one"] if later else []
    return _Found(graded.spec, pin, report, graded.port)


def _allowed_pin(request: NewRequest, place: _Place, version: str | None, notes: list[str]) -> str | None:
    return other_pin(place.checkout, version, allowed=request.allow_version_mismatch, notes=notes)


def _plan(
    request: NewRequest, place: _Place, files: dict[str, RenderedFile], spec: IntegrationSpec, notes: list[str]
) -> Plan:
    edits = wiring_edits(files, spec.context())
    if place.checkout is None:
        profile = profile_by_name(str(spec.value("target.profile")))
        return plan_output(files, edits, request.out or ".", profile=profile, force=request.force)
    known = known_digests(place.root, spec)
    files = without_local(files, place.root, notes)
    notes += left_behind(place.root, package_path(spec).rpartition("/")[2], files)
    return plan_checkout(files, edits, place.checkout.root, known=known, force=request.force)


_SHOWN = 10


def uncommitted_notes(plan: Plan) -> list[str]:
    """Return a warning that names files of the checkout with uncommitted changes, except files an earlier run wrote."""
    ours = {change.path for change in plan.changes if change.action == "same"}
    found = [path for path in uncommitted(plan.root) if path not in ours]
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"the checkout has changes that are not committed: {', '.join(found[:_SHOWN])}{more}"]
