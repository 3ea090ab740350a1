"""``omni-scaffold new``: from a pipeline and a checkpoint to a planned integration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from scaffold.errors import RefusedError, ScaffoldError

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.plan import Plan
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec

SPEC_NAME = "scaffold.toml"
_SHOWN = 10
DIFFUSERS_GUIDE = "docs/contributing/integrating_a_diffusion_model.md"


@dataclass(frozen=True)
class NewRequest:
    """The command line of ``new``."""

    model: str
    pipeline: str | None = None
    checkpoint: str | None = None
    vllm_omni: str | None = None
    verl_omni: str | None = None
    out: str | None = None
    profile: str | None = None
    spec: Path | None = None
    date: str | None = None
    force: bool = False


@dataclass(frozen=True)
class NewResult:
    """What was planned, what it rests on, and what the user should know."""

    spec: IntegrationSpec
    plan: Plan
    report: Report | None
    notes: tuple[str, ...]

    @property
    def package_path(self) -> str:
        """Path of the rendered package from the repository's root."""
        return package_path(self.spec)


def package_path(spec: IntegrationSpec) -> str:
    """Return the folder of the rendered package, relative to the repository's root."""
    return f"verl_omni/pipelines/{spec.value('names.package')}"


def plan_new(request: NewRequest) -> NewResult:
    """Inspect, specify, render and plan; nothing is written.

    Raises:
        ScaffoldError: wrong input (exit 2), a verdict that refuses (3) or a conflict found while planning (4).
    """
    from scaffold.plan import plan_checkout, plan_output, recover, wiring_edits
    from scaffold.progress import step
    from scaffold.render import derive_names
    from scaffold.target import Checkout, default_profile, profile_by_name

    names = derive_names(request.model)
    _refuse_empty(request)
    if (request.out is None) == (request.verl_omni is None):
        raise ScaffoldError("say where the integration goes", hint="give either --out DIR or --verl-omni CHECKOUT")
    notes: list[str] = []
    checkout = None
    unfinished = recover(Path(request.verl_omni or request.out or ".").expanduser())
    if unfinished:
        notes.append(unfinished)
    if request.verl_omni is not None:
        checkout = Checkout.open(request.verl_omni)
        profile = checkout.profile
        notes += checkout.notes
    else:
        profile = profile_by_name(request.profile) if request.profile is not None else default_profile()

    report = None
    if request.spec is not None:
        _refuse_flags(request)
        spec = _read_spec(request.spec, names.model)
        written_for = str(spec.value("target.profile"))
        if checkout is not None and written_for != profile.name:
            raise ScaffoldError(
                f"{request.spec} was made for verl-omni {written_for}, the checkout is {profile.name}",
                hint="run `new` without --spec for this checkout",
            )
        profile = profile_by_name(written_for)
    else:
        pin = checkout.vllm_omni_pin if checkout else (profile.vllm_omni if request.profile else None)
        report, spec = _specify(request, names, profile, pin)
    with step("rendering"):
        files, spec = render_package(spec, notes, checkout.root if checkout is not None else None)
    edits = wiring_edits(files, spec.context())
    plan = (
        plan_checkout(files, edits, checkout.root, known=_known(checkout.root, spec), force=request.force)
        if checkout is not None
        else plan_output(files, edits, request.out or ".", profile=profile, force=request.force)
    )
    if checkout is not None:
        notes += uncommitted_notes(plan)
    return NewResult(spec, plan, report, tuple(notes))


def uncommitted_notes(plan: Plan) -> list[str]:
    """Return a warning that names files of the checkout with changes that are not committed.

    What an earlier run wrote and nobody has committed yet is no reason for it.
    """
    from scaffold.plan.git import uncommitted

    ours = {change.path for change in plan.changes if change.action == "same"}
    found = [path for path in uncommitted(plan.root) if path not in ours]
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"the checkout has changes that are not committed: {', '.join(found[:_SHOWN])}{more}"]


def _known(root: Path, spec: IntegrationSpec) -> dict[str, str]:
    """Digests of the files as they were last rendered there; empty where nothing was."""
    import hashlib

    from scaffold.spec.seal import is_sealed

    path = f"{package_path(spec)}/{SPEC_NAME}"
    text, recorded = _recorded(root, spec)
    if recorded is None:
        return {}
    mine = {path: hashlib.sha256(text.encode()).hexdigest()} if is_sealed(text) else {}
    return {**recorded.files, **mine}


def _recorded(root: Path, spec: IntegrationSpec) -> tuple[str, IntegrationSpec | None]:
    """Return text and content of the spec that an earlier run left in the checkout."""
    from scaffold.spec import IntegrationSpec

    path = root / package_path(spec) / SPEC_NAME
    try:
        text = path.read_text(encoding="utf-8")
        return text, IntegrationSpec.from_toml(text, str(path))
    except (OSError, UnicodeDecodeError, ScaffoldError):
        return "", None


def render_package(
    spec: IntegrationSpec, notes: list[str], checkout: Path | None = None
) -> tuple[dict[str, RenderedFile], IntegrationSpec]:
    """Render every file, and the spec itself with the digests of the others.

    Args:
        spec: what to render.
        notes: receives one line for each check that this machine could not make.
        checkout: where the files will be; the spec then keeps which folders they need that it did not have.
    """
    import hashlib
    from dataclasses import replace

    from scaffold.remap import KeyMap
    from scaffold.render import RenderedFile, render
    from scaffold.spec import IntegrationSpec
    from scaffold.spec.seal import seal
    from scaffold.spec.validate import validate

    # What is rendered is what the file says: reading it back fixes the order of keys.
    spec = IntegrationSpec.from_toml(spec.to_toml())
    validate(spec)
    context = spec.context()
    KeyMap.from_data(context["checkpoint"]["rules"])
    files = render(context, notes=notes)
    digests = {
        path: hashlib.sha256((file.link_to or file.content).encode()).hexdigest() for path, file in files.items()
    }
    path = f"{package_path(spec)}/{SPEC_NAME}"
    folders = _made_folders(checkout, [*files, path], spec) if checkout is not None else ()
    spec = replace(spec, files=digests, folders=folders)
    files[path] = RenderedFile(seal(spec.to_toml()), template=SPEC_NAME)
    return dict(sorted(files.items())), spec


def _made_folders(root: Path, paths: list[str], spec: IntegrationSpec) -> tuple[str, ...]:
    """Return the folders that the files need and the checkout lacks, or that an earlier run made for them."""
    from scaffold.plan.folder import Folder

    _, recorded = _recorded(root, spec)
    needed = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    with Folder(root) as folder:
        missing = {parent for path in paths for parent in folder.missing_parents(path)}
    return tuple(sorted(missing | (set(recorded.folders) & needed if recorded else set())))


def _specify(request: NewRequest, names, profile, pin: str | None):  # type: ignore[no-untyped-def]
    from scaffold.checkpoint import read_checkpoint
    from scaffold.inspect import inspect_pipeline
    from scaffold.progress import step
    from scaffold.spec import SpecRequest, build_spec
    from scaffold.upstream import locate

    headers = read_checkpoint(request.checkpoint) if request.checkpoint is not None else None
    source = locate(request.vllm_omni, checkout_pin=pin)
    with step(f"reading vllm-omni {source.label}"):
        report = inspect_pipeline(source, request.pipeline or request.model, headers)
    refuse(report)
    return report, build_spec(SpecRequest(report, names, profile, headers, request.date))


def refuse(report: Report) -> None:
    """Raise `RefusedError` for a pipeline that this path does not serve."""
    verdict, pipeline = report.verdict, report.upstream.pipeline
    if verdict["path"] == "diffusers":
        raise RefusedError(
            f"{pipeline} loads through diffusers: {verdict['reason']}",
            hint=f"follow {DIFFUSERS_GUIDE}; that path needs no training module of its own",
        )
    if verdict["path"] == "refused":
        raise RefusedError(f"{pipeline} cannot be trained with FlowGRPO: {verdict['reason']}")


def _refuse_empty(request: NewRequest) -> None:
    """An empty value is a shell variable that was never set, not a wish for the default."""
    for flag, value in {
        "--pipeline": request.pipeline,
        "--checkpoint": request.checkpoint,
        "--vllm-omni": request.vllm_omni,
        "--profile": request.profile,
        "--date": request.date,
        "--out": request.out,
        "--verl-omni": request.verl_omni,
    }.items():
        if value is not None and not value.strip():
            raise ScaffoldError(f"{flag} is empty", hint="give it a value or leave it out")


def _refuse_flags(request: NewRequest) -> None:
    """A spec already holds what these flags decide; obeying one of the two in silence would be wrong."""
    given = {
        "--pipeline": request.pipeline,
        "--checkpoint": request.checkpoint,
        "--vllm-omni": request.vllm_omni,
        "--profile": request.profile,
        "--date": request.date,
    }
    for flag, value in given.items():
        if value is not None:
            raise ScaffoldError(f"{flag} and --spec exclude each other", hint="edit the spec, or leave --spec out")


def _read_spec(path: Path, model: str) -> IntegrationSpec:
    from scaffold.spec import IntegrationSpec

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScaffoldError(f"cannot read the spec {path}: {error}") from None
    spec = IntegrationSpec.from_toml(text, str(path))
    if spec.value("names.model") != model:
        raise ScaffoldError(f"{path} is the spec of {spec.value('names.model')!r}, not of {model!r}")
    return spec
