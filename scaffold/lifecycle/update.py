"""``omni-scaffold update``: plans the package's next state, merged with a person's edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold import __version__
from scaffold.errors import ConflictError, ScaffoldError
from scaffold.grade import is_ported
from scaffold.grade.ported_spec import imported
from scaffold.grade.rendering import ported_again
from scaffold.lifecycle.base import Bases
from scaffold.lifecycle.changed_values import ChangedValue, changed_values
from scaffold.lifecycle.derive import derive
from scaffold.lifecycle.drift.names import Names
from scaffold.lifecycle.drift.surface import surface_changes
from scaffold.lifecycle.drift.uses import uses
from scaffold.lifecycle.formulas import without_formulas
from scaffold.lifecycle.merge_files import FileMerge, merge_files, unresolved
from scaffold.lifecycle.next_spec import NextSpec, edited_spec, pipeline_of, read, recorded_source, upstream_spec
from scaffold.lifecycle.overrides import require_overrides
from scaffold.lifecycle.package import ScaffoldedPackage, recover_around
from scaffold.new import render_files, render_package, uncommitted_notes
from scaffold.new.recorded import left_behind, used_by_others, without_local
from scaffold.plan import wiring_edits
from scaffold.plan.change import FileState, PlannedChange, as_there, plain
from scaffold.plan.edits import needs_file
from scaffold.plan.output import PATCH, states
from scaffold.plan.plan import Plan
from scaffold.plan.rewire import rewired
from scaffold.plan.sketch import patch as sketched
from scaffold.render.runtime import is_runtime, refuse_newer
from scaffold.spec.rewrite import rewrite
from scaffold.terminal.progress import step

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.plan.edits import FileEdit
    from scaffold.port import Port
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec
    from scaffold.upstream import UpstreamSource

SCHEMA = 1


@dataclass(frozen=True)
class UpdateRequest:
    """The command line of ``update``."""

    package: str
    vllm_omni: str | None = None
    base: str | None = None
    spec: bool = False
    force: bool = False
    dry: bool = False
    allow_version_mismatch: bool = False
    preset: Path | None = None
    packaged: bool = False


@dataclass(frozen=True)
class UpdateResult:
    """A planned update."""

    package: ScaffoldedPackage
    spec: IntegrationSpec
    plan: Plan
    merge: FileMerge
    notes: tuple[str, ...]
    values: tuple[ChangedValue, ...]

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Return the stable answer of ``update --format json``, without what ``check`` finds afterwards."""
        old, new = self.package.spec, self.spec
        return {
            "schema": SCHEMA,
            "package": {"name": new.value("names.package"), "path": self.package.path},
            "from": old.value("upstream.version"),
            "to": new.value("upstream.version"),
            "verl_omni": new.value("target.profile"),
            "merged": list(self.merge.merged),
            "undecided": sorted({*self.merge.marked, *self.merge.broken, *self.merge.kept}),
            "values": [value.to_json() for value in self.values],
            "notes": list(self.notes),
            "written": written,
            **self.plan.to_json(),
        }

    def check_complete(self, *, written: bool) -> None:
        """Raise `ConflictError` if a person must decide.

        Args:
            written: whether the plan was committed, or only shown.
        """
        parts = [
            f"{what}: {', '.join(paths)}"
            for what, paths in (
                ("conflict markers in", self.merge.marked),
                ("merged, but no longer Python", self.merge.broken),
                ("not merged, look at", self.merge.kept),
            )
            if paths
        ]
        if not parts:
            return
        if not written:
            raise ConflictError(f"would need you: {'; '.join(parts)}; nothing was written", hint=None)
        check = f"`omni-scaffold check {self.package.from_here}`"
        raise ConflictError(
            f"not done: {'; '.join(parts)}",
            hint=f"resolve them, then run {check}; `git diff` shows what came in",
        )


def _refuse_edited_text(package: ScaffoldedPackage) -> None:
    """Leave a package alone in whose text of a denoiser a person has edited.

    Raises:
        ConflictError: there are such edits.
    """
    if not _holds_text(package.spec):
        return
    path = f"{package.path}/{package.spec.value('names.model')}_denoiser.py"
    there = states(package.root, [path])[path]
    if there is not None and path in package.files and there.content_sha256 != package.files[path]:
        raise ConflictError(
            f"{path} holds the denoiser's text and is edited here: the package is left as it is; nothing was written",
            hint="vllm-omni's own class is imported now: take the edits out, then `update` does that",
        )


def _holds_text(spec: IntegrationSpec) -> bool:
    """Whether a package was rendered with the text of its denoiser, as older ones were."""
    return is_ported(spec) and bool(spec.value("port.entry")) and spec.value("port.form") in (None, "ported")


def _importing(package: ScaffoldedPackage, found: NextSpec, port: Port) -> NextSpec:
    """Have a package import its denoiser, and say so where it held the text of one."""
    sections = {**found.spec.sections, "port": {**found.spec.sections["port"], **imported(port)}}
    notes = found.notes
    if _holds_text(package.spec):
        path = f"{package.path}/{found.spec.value('names.model')}_denoiser.py"
        notes = (*notes, f"{path} held the text of the denoiser: it imports vllm-omni's own class now")
    return replace(found, spec=replace(found.spec, sections=sections), notes=notes)


def plan_update(request: UpdateRequest) -> UpdateResult:
    """Plan an update; nothing is written.

    Raises:
        ScaffoldError: no such package, a version that is not available, or no place for an edit (exit 2).
        RefusedError: the new version cannot be integrated this way (3).
        ConflictError: markers of an earlier merge, or a value that was edited and changed upstream (4).
    """
    if request.spec and request.preset is not None:
        raise ScaffoldError("--spec renders scaffold.toml as it is", hint="leave out --preset")
    if request.spec and (request.vllm_omni or request.base):
        raise ScaffoldError("--spec renders scaffold.toml as it is", hint="leave out --vllm-omni and --from")
    for flag, value in (("--vllm-omni", request.vllm_omni), ("--from", request.base)):
        if value is not None and not value.strip():
            raise ScaffoldError(f"{flag} is empty", hint="give it a value or leave it out")
    recover_around(request.package, dry=request.dry)
    notes: list[str] = []
    package = ScaffoldedPackage.open(request.package, preset=request.preset, packaged=request.packaged)
    _refuse_unresolved(package)
    _refuse_edited_text(package)
    if not request.force:
        _refuse_newer(package)
        refuse_newer(package.root)
        if not request.packaged:
            require_overrides(package)
    found = (
        edited_spec(package, allowed=request.allow_version_mismatch)
        if request.spec
        else upstream_spec(
            package,
            request.vllm_omni,
            request.base,
            force=request.force,
            allowed=request.allow_version_mismatch,
        )
    )
    with step("rendering"):
        root = package.root if package.checkout is not None else None
        port = found.port
        if port is None and is_ported(found.spec) and found.spec.value("port.entry"):
            port = ported_again(found.spec)
        if port is not None:
            found = _importing(package, found, port)
        notes += found.notes
        files, spec = render_package(found.spec, notes, root, port)
    own, lock = (FileState.of(files.pop(path)) for path in (package.spec_path, package.lock_path))
    values = _changed_values(package, spec, files, port, notes)
    kept = without_local(files, package.root, notes)
    new = {path: FileState.of(file) for path, file in kept.items()}
    notes += left_behind(package.root, package.path.rpartition("/")[2], kept)
    used = used_by_others(package.root, package.path.rpartition("/")[2])
    used |= files.keys() - kept.keys()
    recorded = {path: digest for path, digest in package.files.items() if path in new or path not in used}
    there = states(package.root, [*recorded, *new, package.spec_path, package.lock_path, PATCH])
    recorded, told = without_formulas(package, recorded, there, new)
    notes += told

    def derived() -> Graded:
        source = recorded_source(package.spec, request.base)
        return derive(package.spec, read(package.spec, source), package.profile, source, team=package.team)

    bases = Bases(package, derived)
    labels = (
        "edited here",
        f"rendered from vllm-omni {package.spec.value('upstream.version')}",
        f"rendered from vllm-omni {spec.value('upstream.version')}",
    )
    with step("merging"):
        merge = merge_files(recorded, there, new, bases, labels=labels, force=request.force)
    notes += _runtime_notes(recorded, there, merge)
    own = _spec_state(package, spec, own, force=request.force)
    changes = list(merge.changes)
    for path, state in ((package.spec_path, own), (package.lock_path, lock)):
        changes.append(PlannedChange(path, there[path], as_there(state, there[path])))
    changes += _wired(package, spec, files, there[PATCH], merge)
    changes.sort(key=lambda change: change.path)
    if found.sources is not None:
        notes += _broken_uses(changes, *found.sources, pipeline_of(spec))
    plan = Plan(
        package.root,
        tuple(changes),
        request.force,
        ConflictError,
        "these files cannot be merged",
        "move your edits away, or use --force: new files overwrite, edited ones get conflict markers",
    )
    if package.checkout is not None:
        notes += uncommitted_notes(plan)
    return UpdateResult(package, spec, plan, merge, tuple(notes), values)


def _runtime_notes(
    recorded: Mapping[str, str], there: Mapping[str, FileState | None], merge: FileMerge
) -> Iterator[str]:
    """Yield what becomes of each file of the runtime that was edited since it was rendered."""
    changed = {change.path for change in merge.changes if change.action != "same"}
    for path, digest in recorded.items():
        state = plain(there.get(path))
        if is_runtime(path) and state is not None and state.content_sha256 != digest:
            what = "the new one is merged into it" if path in changed else "kept as it is"
            yield f"{path} was edited: {what}; LOCAL in its __init__.py names a version of your own"


def _changed_values(
    package: ScaffoldedPackage,
    spec: IntegrationSpec,
    files: dict[str, RenderedFile],
    port: Port | None,
    notes: list[str],
) -> tuple[ChangedValue, ...]:
    before = package.stored.rendered
    if before is None:
        if package.stored.edited:
            notes.append(f"{package.lock_path} is of an older omni-scaffold: it does not have the values of before")
        before = {name: dict(values) for name, values in package.spec.sections.items()}
    with step("comparing values"):
        return changed_values(before, spec, files, lambda other: render_files(other, [], port))


def _spec_state(package: ScaffoldedPackage, spec: IntegrationSpec, new: FileState, *, force: bool) -> FileState:
    """Return ``scaffold.toml`` with the new values and a person's comments.

    Raises:
        ConflictError: that cannot be done without losing what the person wrote.
    """
    text = rewrite(package.stored.text, spec, package.spec)
    if text is None and not force:
        raise ConflictError(
            f"{package.spec_path}: new values cannot be put into it without losing your comments; nothing was written",
            hint="bring the tables of each section together, or let --force write the file anew",
        )
    return new if text is None else FileState.text(text)


def _broken_uses(changes: list[PlannedChange], old: UpstreamSource, new: UpstreamSource, pipeline: str) -> list[str]:
    """Return a line for each name the result uses that vllm-omni no longer has."""
    texts = {
        change.path: change.after.content.decode("utf-8", "replace")
        for change in changes
        if change.after is not None and not change.after.link
    }
    found = surface_changes(uses(texts), Names(old, pipeline), Names(new, pipeline))
    return [f"{change.file}:{change.line}: {change.name}: {change.effect}" for change in found]


def _refuse_unresolved(package: ScaffoldedPackage) -> None:
    left = unresolved(states(package.root, package.files))
    if left:
        raise ConflictError(
            f"conflict markers of an earlier merge are still in {', '.join(left)}; nothing was written",
            hint="resolve them first",
        )


def _refuse_newer(package: ScaffoldedPackage) -> None:
    """Refuse a package of a newer tool: this one would bring back older values and templates."""
    written = str(package.spec.value("tool.version"))
    if _numbers(written) > _numbers(__version__):
        raise ScaffoldError(
            f"{package.spec_path} was written by omni-scaffold {written}, this is {__version__}",
            hint="install that version or a newer one, or use --force to go back to this one",
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal() and len(part) < 10]


def _wired(
    package: ScaffoldedPackage,
    spec: IntegrationSpec,
    files: dict[str, RenderedFile],
    patch: FileState | None,
    merge: FileMerge,
) -> list[PlannedChange]:
    """Plan the edits of the target's own files: in place in a checkout, as a patch beside a tree of its own."""
    made, wanted = package.edits(), wiring_edits(files, spec.context())
    if package.checkout is None:
        old = FileState.text(sketched(package.profile, made))
        new = FileState.text(sketched(package.profile, wanted))
        if patch is None or old == new:
            return []
        if patch == old:
            return [PlannedChange(PATCH, patch, new)]
        merge.kept.append(PATCH)
        return [PlannedChange(PATCH, patch, patch, note="edited, kept")]
    grouped: dict[str, tuple[list[FileEdit], list[FileEdit]]] = {}
    for index, edits in enumerate((made, wanted)):
        for edit in edits:
            grouped.setdefault(edit.path, ([], []))[index].append(edit)
    there = states(package.root, grouped)
    return [
        rewired(path, there[path], made=before, wanted=after)
        for path, (before, after) in grouped.items()
        # Edits of a file that no longer exists need no undoing.
        if there[path] is not None or any(map(needs_file, after))
    ]
