"""From the request to the plan: inspect, specify, render; nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded
from scaffold.grade import grade_of, specify
from scaffold.inspect.report import LATER
from scaffold.new.loaded import loaded
from scaffold.new.own_packages import own_package_notes
from scaffold.new.package import render_package
from scaffold.new.recipe_options import RecipeOptions, with_options
from scaffold.new.recorded import from_here, known_digests, package_path, record_paths, recorded_spec
from scaffold.new.refusal import refuse
from scaffold.new.request import NewRequest, named_after_pipeline, refuse_flags, refuse_values
from scaffold.new.uncommitted import uncommitted_notes
from scaffold.new.version_match import other_pin, with_pin
from scaffold.new.weight_files import weight_file_notes
from scaffold.plan import plan_checkout, plan_output, wiring_edits
from scaffold.plan.recovery import recover_aloud
from scaffold.render import derive_names
from scaffold.render.runtime import refuse_newer
from scaffold.spec import SpecRequest, read_spec
from scaffold.spec.derived import comparable, digest
from scaffold.target import Checkout, default_profile, profile_by_name
from scaffold.team import team_for
from scaffold.terminal.progress import step
from scaffold.upstream import locate
from scaffold.upstream.identity import identified
from scaffold.upstream.own_pipeline import with_own_pipeline

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.inspect import Report
    from scaffold.plan import Plan
    from scaffold.render.names import Names
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile
    from scaffold.team import Team
    from scaffold.upstream import UpstreamSource
if TYPE_CHECKING:
    from scaffold.new.request import NewRequest
    from scaffold.plan import Plan
    from scaffold.spec import IntegrationSpec


# `new` over a package that it wrote before: what became of that since is not taken back, and the command is named.

# The tool and the target say these themselves.
_NOBODYS = ("tool.", "target.", "upstream.version", "upstream.checkout_pin")


def keep_own(plan: Plan, spec: IntegrationSpec, request: NewRequest) -> Plan:
    """Return the plan with a conflict where the package that is there is of another version, or has values set by hand.

    Whatever is in conflict in a package of the tool's own, the hint is the ``update`` that does what is wanted.
    """
    stored = recorded_spec(plan.root, spec)
    if stored is None:
        return plan
    recorded, (path, _) = stored.spec, record_paths(spec)
    there, wanted = recorded.value("upstream.version"), spec.value("upstream.version")
    names = hand_set(recorded, spec) if request.spec is None else ()
    reasons = [f"made for vllm-omni {there}, not {wanted}"] if there != wanted else []
    reasons += [f"set by hand: {', '.join(names)}"] if names else []
    if reasons:
        conflict = "; ".join(reasons)
        changes = tuple(
            replace(change, conflict=conflict) if change.path == path else change for change in plan.changes
        )
        plan = replace(plan, changes=changes)
    command = f"omni-scaffold update {from_here(plan.root, package_path(spec))}"
    if request.spec is not None:
        own = Path(request.spec).resolve() == (plan.root / path).resolve()
        first = "" if own else f"set its values in {path} and "
        advice = f"{first}`{command} --spec` renders them, with your edits of other files kept"
    elif there != wanted:
        advice = f"`{command} --vllm-omni {request.vllm_omni or wanted}` carries the package there and keeps your edits"
    elif names:
        advice = f"`{command} --spec` renders the values that you set, `{command}` renders anew and keeps them"
    else:
        advice = f"`{command}` renders anew and keeps your edits"
    return replace(
        plan,
        conflict_message="`new` wrote this package before, and it is another one now",
        conflict_hint=f"{advice}; --force overwrites them",
    )


def hand_set(recorded: IntegrationSpec, new: IntegrationSpec) -> tuple[str, ...]:
    """Return ``section.key`` of each recorded value that is not the tool's own and is another one in ``new``."""
    if not recorded.derived:
        return ()  # an older spec does not tell
    found = []
    for section, values in recorded.sections.items():
        for key, value in values.items():
            name = f"{section}.{key}"
            mine = value is not None and digest(value) != recorded.derived.get(name)
            other = new.sections.get(section, {}).get(key)
            if mine and not name.startswith(_NOBODYS) and comparable(value) != comparable(other):
                found.append(name)
    return tuple(found)


SCHEMA = 1


@dataclass(frozen=True)
class NewResult:
    """What was planned, what it rests on, and what the user should know.

    ``filled`` is what the package made of the checkpoint that was given, or why nobody knows; None where none was.
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
        choose: gets the spec and gives the options of the recipe in place of the request's.

    Raises:
        ScaffoldError: wrong input (exit 2), a verdict that refuses (3) or a conflict found while planning (4).
    """
    request = named_after_pipeline(request)
    names = derive_names(request.model)
    refuse_values(request)
    if request.out is not None and request.verl_omni is not None:
        raise ScaffoldError("--out and --verl-omni exclude each other", hint="say where the integration goes")
    if request.out is None and request.verl_omni is None:
        above = Checkout.above(Path.cwd())
        if above is None:
            hint = "give --out DIR or --verl-omni CHECKOUT, or run this inside of a checkout"
            raise ScaffoldError("say where the integration goes", hint=hint)
        request = replace(request, verl_omni=str(above.root))
    if request.verl_omni is not None and request.profile is not None:
        raise ScaffoldError("--profile goes with --out", hint="a checkout says itself which release it is")
    notes: list[str] = []
    checkout = None
    recover_aloud(expanded(request.verl_omni or request.out or "."), dry=request.dry)
    if request.verl_omni is not None:
        checkout = Checkout.open(request.verl_omni)
        profile = checkout.profile
        notes += checkout.notes
    else:
        profile = profile_by_name(request.profile) if request.profile is not None else default_profile()

    root = expanded(checkout.root if checkout is not None else request.out or ".")
    refuse_newer(root)
    team = team_for(root, request.preset, packaged=request.packaged)
    report, port = None, None

    def allowed_pin(version: str | None) -> str | None:
        return other_pin(checkout, version, allowed=request.allow_version_mismatch, notes=notes)

    if request.spec is not None:
        refuse_flags(request)
        spec = _read_spec(request.spec, names.model)
        written_for = str(spec.value("target.profile"))
        if checkout is not None and written_for != profile.name:
            raise ScaffoldError(
                f"{request.spec} was made for verl-omni {written_for}, the checkout is {profile.name}",
                hint="run `new` without --spec for this checkout",
            )
        profile = profile_by_name(written_for)
        pin = allowed_pin(spec.value("upstream.version"))
    else:
        wanted = checkout.vllm_omni_pin if checkout else (profile.vllm_omni if request.profile else None)
        source, pipeline = with_own_pipeline(
            locate(request.vllm_omni, checkout_pin=wanted), request.pipeline or request.model
        )
        request = replace(request, pipeline=pipeline)
        if request.vllm_omni is not None or len(source.packages) > 1:
            source = identified(source)
        pin = allowed_pin(source.version)
        report, graded = _specify(request, names, profile, source, team, notes)
        spec, port = graded.spec, graded.port
        later = report.fact(LATER).value
        notes += [f"{later}: where diffusers loads the checkpoint, its path is the easier one"] if later else []
    spec = with_pin(with_options(spec, choose(spec) if choose is not None else request.recipe), pin)
    if request.date is None and request.spec is None:
        spec = _dated_as_there(spec, root)
    with step("rendering"):
        files, spec = render_package(spec, notes, checkout.root if checkout is not None else None, port)
    edits = wiring_edits(files, spec.context())
    plan = (
        plan_checkout(files, edits, checkout.root, known=known_digests(checkout.root, spec), force=request.force)
        if checkout is not None
        else plan_output(files, edits, request.out or ".", profile=profile, force=request.force)
    )
    plan = keep_own(plan, spec, request)
    filled = None
    if request.checkpoint is not None:
        with step("loading the checkpoint's headers"):
            key = str(spec.value("upstream.registry_key"))
            filled = loaded(files, package_path(spec), key, request.checkpoint, notes)
    if checkout is not None:
        notes += own_package_notes(checkout.root, spec, profile)
        notes += uncommitted_notes(plan)
    return NewResult(spec, plan, report, tuple(notes), filled, request.checkpoint)


def _dated_as_there(spec: IntegrationSpec, root: Path) -> IntegrationSpec:
    """Keep the date of a package that is there: a second run on another day changes nothing."""
    name, stored = "last_updated", recorded_spec(root, spec)
    there = stored.spec if stored is not None else None
    date = there.value(f"docs.{name}") if there is not None else None
    if there is None or date is None:
        return spec
    sections = {**spec.sections, "docs": {**spec.sections["docs"], name: date}}
    derived = {**spec.derived, f"docs.{name}": there.derived.get(f"docs.{name}", spec.derived[f"docs.{name}"])}
    provenance = {**spec.provenance, f"docs.{name}": there.provenance.get(f"docs.{name}", "")}
    return replace(spec, sections=sections, derived=derived, provenance=provenance)


def _specify(
    request: NewRequest, names: Names, profile: ContractProfile, source: UpstreamSource, team: Team, notes: list[str]
) -> tuple[Report, Graded]:
    from scaffold.inspect import inspect_pipeline

    headers = read_checkpoint(request.checkpoint) if request.checkpoint is not None else None
    with step(f"reading vllm-omni {source.label}"):
        report = inspect_pipeline(source, request.pipeline or request.model, headers, request.task)
    refuse(report)
    notes += weight_file_notes(report, headers) if headers is not None else []
    return report, specify(SpecRequest(report, names, profile, headers, request.date, team), source)


def _read_spec(path: Path, model: str) -> IntegrationSpec:
    spec = read_spec(path).spec
    if spec.value("names.model") != model:
        raise ScaffoldError(f"{path} is the spec of {spec.value('names.model')!r}, not of {model!r}")
    return spec
