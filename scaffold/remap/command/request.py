"""``omni-scaffold remap``: the map of a package or pipeline on a checkpoint, and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaffold.checkpoint import CheckpointHeaders, read_checkpoint
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.command.hand_written import HandWritten
from scaffold.remap.command.package import Package
from scaffold.remap.command.tables import Tables, tables_of
from scaffold.remap.command.third_side import third_side
from scaffold.remap.exchange import unstated
from scaffold.remap.infer import infer_key_map
from scaffold.remap.proof import Offender, Proof, prove
from scaffold.remap.sourced import SourceRules
from scaffold.spec.preset import Preset, find_preset

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.upstream import UpstreamSource


@dataclass(frozen=True)
class RemapRequest:
    """The command line of ``remap``."""

    target: str
    checkpoint: str | None = None
    vllm_omni: str | None = None
    meta: bool = False
    lora_targets: str | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The LoRA targets that were given."""
        return tuple(word.strip() for word in (self.lora_targets or "").split(",") if word.strip())


@dataclass(frozen=True)
class RemapResult:
    """The proof, what it is about, and what the reader should know.

    Attributes:
        title: what was proved.
        proof: the proof.
        notes: what it rests on.
        unused: rules of upstream's loader that match no key.
        cause: the one finding that all others follow from; None where there is no such one.
        advice: what to do next.
    """

    title: str
    proof: Proof
    notes: tuple[str, ...]
    unused: tuple[str, ...]
    cause: Offender | None
    advice: str


def remap(request: RemapRequest) -> RemapResult:
    """Prove the map of a package, or the one inferred for a pipeline.

    Raises:
        ScaffoldError: wrong use, an unreadable checkpoint or package (exit 2), a pipeline that is refused (3).
    """
    given = {"checkpoint": request.checkpoint, "vllm-omni": request.vllm_omni, "lora-targets": request.lora_targets}
    for flag, value in given.items():
        if value is not None and not value.strip(" ,"):
            raise ScaffoldError(f"--{flag} is empty", hint="give it a value or leave it out")
    hand_written = HandWritten.find(request.target)
    if hand_written is not None:
        return _of_pipeline(request, hand_written)
    package = Package.find(request.target)
    return _of_package(package, request) if package is not None else _of_pipeline(request)


def _of_package(package: Package, request: RemapRequest) -> RemapResult:
    from scaffold.grade import is_ported
    from scaffold.remap.parameters import parameters_of
    from scaffold.remap.parameters.configuration import configured, decided_by_tensors

    if is_ported(package.spec):
        return _of_ported(package, request)
    names = package.spec.sections.get("names", {})
    preset = find_preset(str(names.get("model")), package.spec.value("upstream.registry_key"), package.team)
    headers, notes = _headers(request, preset)
    headers = _own_files(package, headers, notes)
    tree = package.module_tree()
    tables = tables_of(package, tree)
    key_map = tables.key_map
    module, config = package.value("names.module_class"), package.value("names.config_class")
    values, note = configured(package.spec.sections["checkpoint"], headers, config)
    notes += [note] if note else []
    table = package.spec.value("architecture.position_embedding")
    values |= decided_by_tensors(tree, module, f"{table}.pos_embed" if table else None, key_map, headers)
    if request.meta:
        from scaffold.remap.parameters.meta import parameters_on_meta

        shapes = parameters_on_meta(package.module_path, module, config, values)
        notes.append("the module was built on the meta device")
    else:
        shapes = parameters_of(tree, module, config, values, package.module_path.name)
    source, report, why = _upstream(package, request)
    rules = SourceRules.of(report) if report is not None else SourceRules()
    computed = package.spec.value("checkpoint.computed") or []
    proof = prove(key_map, headers, shapes, computed=computed, stacked=rules.stacked)
    notes += [f"computed by the module: {', '.join(map(quoted, computed))}"] if computed else []
    notes += [f"the order of the parts of {label} is the rule's own word" for label in unstated(key_map, rules.stacked)]
    if source is None or report is None:
        notes.append(f"engine and lora unknown: {why}")
    else:
        proof, more = third_side(
            proof,
            source,
            _pipeline_of(report),
            {name: shape for name, shape in shapes.items() if name not in computed},
            targets=request.targets or package.spec.value("lora.targets") or (),
            package=package.modules(),
            sync=package.spec.value("lora.sync"),
            lora_hook=package.spec.value("target.lora_hook"),
        )
        notes += more
    unused = [f"{rule.source} ({rule.place})" for rule in rules.unused(headers.tensors)]
    title, command = f"package {package.folder.name}", f"`omni-scaffold update {request.target} --spec`"
    if tables.cause is None:
        advice = (
            _CHECK.format(request.target) if proof.holds else f"correct [checkpoint] in scaffold.toml and run {command}"
        )
        return RemapResult(title, proof, tuple(notes), tuple(unused), None, advice)
    sound = not tables.edited and proof.holds
    if tables.edited:
        sound = prove(package.key_map(), headers, shapes, computed=computed, stacked=rules.stacked).holds
    cause = Offender("covers", package.module_path.name, tables.cause)
    held = proof.holds
    proof = proof.with_offenders([cause], first=True)
    advice = _after(tables, command, sound=sound, held=held)
    return RemapResult(title, proof, tuple(notes), tuple(unused), cause if tables.edited and sound else None, advice)


_CHECK = "`omni-scaffold check {}`"


def _after(tables: Tables, command: str, *, sound: bool, held: bool) -> str:
    """Say what helps where code and spec have other rules.

    Args:
        tables: where they part.
        command: what renders the spec.
        sound: whether the rules of the spec hold.
        held: whether those that were proved do.
    """
    if not tables.edited:
        return f"{'' if sound else 'correct [checkpoint] in scaffold.toml and '}run {command}"
    if held and not sound:
        return f"give [[checkpoint.rules]] in scaffold.toml the rules of the code, then run {command}"
    if sound and held and tables.readable:
        return f"{tables.restore}; or make the same change in [[checkpoint.rules]] of scaffold.toml, and run {command}"
    if sound:
        return tables.restore
    return f"{tables.restore}; then correct [checkpoint] in scaffold.toml and run {command}"


def _of_ported(package: Package, request: RemapRequest) -> RemapResult:
    """Prove the LoRA targets of a package whose weights the pipeline's own loader places."""
    from scaffold.remap.command.ported import prove_ported

    if request.checkpoint is not None or request.meta:
        raise ScaffoldError(
            f"{package.folder}: its denoiser is ported, and the pipeline's own code places the checkpoint's keys",
            hint="leave out --checkpoint and --meta to prove the LoRA targets; `omni-scaffold verify` loads one",
        )
    targets = request.targets or tuple(package.spec.value("lora.targets") or ())
    proof, notes = prove_ported(package, targets, *_upstream(package, request))
    advice = _CHECK.format(request.target)
    if not proof.holds:
        advice = "correct [lora] in the package's scaffold.toml and run `omni-scaffold update PACKAGE --spec`"
        if any(entry.get("key") == "lora_sync" for entry in package.spec.value("grade.missing") or []):
            advice = "write what the package's README lists, and run this again"
    return RemapResult(f"package {package.folder.name}", proof, tuple(notes), (), None, advice)


def _of_pipeline(request: RemapRequest, package: HandWritten | None = None) -> RemapResult:
    """Prove the rules that names, shapes and source lead to; with what a hand-written package makes of them."""
    from scaffold.inspect import inspect_pipeline
    from scaffold.new import refuse
    from scaffold.render import derive_names
    from scaffold.spec import SpecRequest, build_spec
    from scaffold.spec.architecture import parameters
    from scaffold.target import default_profile
    from scaffold.upstream import locate

    given = read_checkpoint(request.checkpoint) if request.checkpoint is not None else None
    source = locate(request.vllm_omni, checkout_pin=package.pin if package is not None else None)
    report = inspect_pipeline(source, package.pipeline_in(source) if package is not None else request.target, given)
    refuse(report)
    preset = find_preset(request.target, report.facts["detail.pipeline.registry_key"].value)
    headers, notes = (given, []) if given is not None else _headers(request, preset)
    name = request.target if request.target.isidentifier() and request.target.islower() else "model"
    spec_request = SpecRequest(report, derive_names(name), default_profile(), given)
    sections = build_spec(spec_request, until="architecture").sections
    shapes = parameters(sections["architecture"], sections["latents"])
    if package is not None:
        own, how = package.parameters(sections["architecture"], request.meta)
        shapes = shapes if own is None else own
        notes += _notes_on(package, how, own is not None)
    rules = SourceRules.of(report)
    reasons = preset.value("checkpoint", "drop_reasons") or {}
    key_map = infer_key_map(headers, shapes, source=rules, drop_reasons=reasons, partial=True)
    files = sorted({headers.tensors[key].file for key in key_map.apply_all(headers).targets})
    if files and len(files) < len(headers.files):
        headers = headers.select(files)
        notes.append(f"read {', '.join(files)} only: training takes nothing from the other files")
        key_map = infer_key_map(headers, shapes, source=rules, drop_reasons=reasons, partial=True)
    proof = prove(key_map, headers, shapes, stacked=rules.stacked)
    targets = request.targets or (package.targets if package is not None else ())
    proof, more = third_side(
        proof,
        source,
        _pipeline_of(report),
        shapes,
        targets=targets,
        package=package.modules if package is not None else None,
        lora_hook=package.lora_hook if package is not None else None,
    )
    if package is None:
        more.append(
            "lora: the engine as it is, without what a package does for its adapters; give a package's folder for that"
            if targets
            else "lora unknown: it depends on the package; give its folder, or --lora-targets for the engine as it is"
        )
    elif not targets:
        more.append("lora unknown: no launch script names the package's LoRA targets; give --lora-targets")
    unused = [f"{rule.source} ({rule.place})" for rule in rules.unused(headers.tensors)]
    title = f"{report.upstream.pipeline} of vllm-omni {report.upstream.label}"
    if package is not None:
        title = f"package {package.folder.name}, {title},"
        advice = _CHECK.format(request.target) if proof.holds else "correct what the lines above name in the package"
    elif proof.holds:
        advice = "`omni-scaffold new MODEL --checkpoint …` renders the map"
    else:
        advice = (
            "give the checkpoint of this pipeline; a package that `new` wrote takes rules by hand, in scaffold.toml"
        )
    return RemapResult(title, proof, tuple(notes + more), tuple(unused), None, advice)


def _notes_on(package: HandWritten, how: str, readable: bool) -> list[str]:
    notes = [
        f"{package.folder.name} has no scaffold.toml: the rules are those that names and shapes lead to, "
        "what its own loader does is not read"
    ]
    said = how if readable else f"the parameters are those that a rendered module would have: {how}"
    return [*notes, said]


def _headers(request: RemapRequest, preset: Preset) -> tuple[CheckpointHeaders, list[str]]:
    if request.checkpoint is not None:
        return read_checkpoint(request.checkpoint), []
    headers = preset.headers()
    if headers is None:
        raise ScaffoldError(f"no checkpoint is known for {request.target}", hint="name one with --checkpoint")
    return headers, [f"no --checkpoint: names and shapes are those of the packaged manifest {preset.manifest}"]


def _own_files(package: Package, headers: CheckpointHeaders, notes: list[str]) -> CheckpointHeaders:
    """Return the part that the package reads; the whole where its files have other names."""
    wanted = package.spec.value("checkpoint.files") or []
    present = {file.name for file in headers.files}
    if wanted and set(wanted) < present:
        notes.append(f"read {', '.join(wanted)} only, as the package does")
        return headers.select(wanted)
    if wanted and not set(wanted) <= present:
        notes.append(f"the package reads {', '.join(wanted)}, the checkpoint has {', '.join(sorted(present)[:5])}")
    return headers


def _upstream(package: Package, request: RemapRequest) -> tuple[UpstreamSource | None, Report | None, str]:
    """Return vllm-omni as the package was made for; nothing, and why, where it cannot be had."""
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

    version = package.spec.value("upstream.version")
    module, name = package.value("upstream.module"), package.value("upstream.class")
    if request.vllm_omni is None and not isinstance(version, str):
        return None, None, "the spec names no version of vllm-omni"
    try:
        source = locate(request.vllm_omni or version)
        return source, inspect_pipeline(source, f"{module}:{name}"), ""
    except ScaffoldError as error:
        if request.vllm_omni is not None:
            raise
        return None, None, error.line


def _pipeline_of(report: Report) -> str:
    return f"{report.upstream.module}:{report.upstream.pipeline}"
