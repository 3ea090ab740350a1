"""``omni-scaffold remove``: the inverse of ``new``, as a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.lifecycle.package import ScaffoldedPackage, recover_around
from scaffold.new.recorded import used_by_others
from scaffold.plan.change import FileState, PlannedChange, plain
from scaffold.plan.edits import needs_file
from scaffold.plan.folder import Folder
from scaffold.plan.output import PATCH, states
from scaffold.plan.plan import Plan
from scaffold.plan.rewire import rewired
from scaffold.plan.sketch import patch
from scaffold.render.runtime import FOLDER as RUNTIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaffold.plan.edits import FileEdit

_CACHE = "__pycache__"
_SHOWN = 10
SCHEMA = 1


@dataclass(frozen=True)
class Removal:
    """A planned removal.

    Attributes:
        package: what is removed.
        plan: files that go and edits that are undone.
        kept: edited files that stay.
        undecided: edited files without a decision; while there are any, nothing is removed.
        notes: what else the user should know.
    """

    package: ScaffoldedPackage
    plan: Plan
    kept: tuple[str, ...]
    undecided: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Return the stable answer of ``remove --format json``."""
        return {
            "schema": SCHEMA,
            "package": {"name": self.package.spec.value("names.package"), "path": self.package.path},
            "kept": list(self.kept),
            "undecided": list(self.undecided),
            "notes": list(self.notes),
            "written": written,
            **self.plan.to_json(),
        }

    def check(self) -> None:
        """Raise `ConflictError` if a person must first decide about edited files."""
        if self.undecided:
            listed = ", ".join(self.undecided)
            raise ConflictError(
                f"edited since they were rendered: {listed}; nothing was removed",
                hint="--keep-edited keeps them and removes all else, --force removes them too",
            )

    def commit(self) -> tuple[str, ...]:
        """Remove everything planned, or nothing, and return the changed paths.

        Raises:
            ScaffoldError: a person has to decide first, something changed since, or the disk refused.
        """
        self.check()
        return self.plan.commit()


def plan_remove(given: str | Path, *, force: bool = False, keep_edited: bool = False, dry: bool = False) -> Removal:
    """Plan the removal of a package.

    Files with their recorded digest are deleted, the edits of the target's files are undone, and the folders that
    ``new`` made are deleted if empty. The caller decides about edited files.

    Args:
        given: the package.
        force: delete edited files too.
        keep_edited: keep edited files, delete all else.
        dry: only show the plan, and leave an interrupted run as it is.

    Raises:
        ScaffoldError: there is no such package, or an edit of the target's files cannot be undone.
    """
    if force and keep_edited:
        raise ScaffoldError("--force and --keep-edited exclude each other", hint="say what becomes of edited files")
    recover_around(given, dry=dry)
    package = ScaffoldedPackage.open(given)
    used = used_by_others(package.root, package.path.rpartition("/")[2])
    files = {path: digest for path, digest in package.files.items() if path not in used}
    recorded = {**files, package.spec_path: "", package.lock_path: ""}
    there = states(package.root, [*recorded, PATCH])
    changes, kept = [], []
    for path, digest in recorded.items():
        state = there[path]
        if state is None:
            continue
        content = plain(state)
        assert content is not None
        if path == package.lock_path and package.spec_path in kept:
            continue  # the kept file is useless without it
        records = path in (package.spec_path, package.lock_path)
        edited = package.stored.edited if records else content.content_sha256 != digest
        if edited and not force:
            kept.append(path)
            continue
        changes.append(PlannedChange(path, state, None))
        changes += _compiled(package.root, path)
    notes: list[str] = []
    if package.checkout is not None:
        changes += _unwired(package, notes)
    else:
        changes += _patch(package, there[PATCH], kept, force=force)
    changes.sort(key=lambda change: change.path)
    notes += _not_ours(package, [*changes], kept)
    gone = [change.path for change in changes if change.after is None]
    kept.sort()
    if keep_edited and kept:
        notes.append(f"edited, and kept: {', '.join(kept)}; nothing of the package is left that they could use")
    return Removal(
        package,
        Plan(package.root, tuple(changes), emptied=_emptied(package, gone)),
        tuple(kept),
        () if keep_edited else tuple(kept),
        tuple(notes),
    )


def _not_ours(package: ScaffoldedPackage, changes: list[PlannedChange], kept: list[str]) -> Iterator[str]:
    """Name the files in the package's folder that ``new`` did not write; they stay."""
    known = {change.path for change in changes} | {*kept, package.lock_path}
    folder = package.root / package.path
    found = sorted(path.relative_to(package.root).as_posix() for path in folder.rglob("*") if not path.is_dir())
    found = [path for path in found if path not in known and _CACHE not in path.split("/")]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield f"not rendered, and kept: {', '.join(found[:_SHOWN])}{more}"


def _unwired(package: ScaffoldedPackage, notes: list[str]) -> Iterator[PlannedChange]:
    grouped: dict[str, list[FileEdit]] = {}
    for edit in package.edits():
        grouped.setdefault(edit.path, []).append(edit)
    for path, state in states(package.root, grouped).items():
        if state is not None:
            yield rewired(path, state, made=grouped[path])
        elif any(map(needs_file, grouped[path])):
            notes.append(f"{path} is gone, nothing to undo in it")


def _patch(
    package: ScaffoldedPackage, state: FileState | None, kept: list[str], *, force: bool
) -> Iterator[PlannedChange]:
    """Plan the patch beside a tree of its own: it is deleted if it is what ``new`` writes."""
    if state is None:
        return
    if force or state == FileState.text(patch(package.profile, package.edits())):
        yield PlannedChange(PATCH, state, None)
    else:
        kept.append(PATCH)


def _compiled(root: Path, path: str) -> Iterator[PlannedChange]:
    """Plan to delete a module's compiled files."""
    module = PurePosixPath(path)
    if module.suffix != ".py":
        return
    cache = root / module.parent / _CACHE
    if cache.is_symlink() or not cache.is_dir():
        return
    with Folder(root) as folder:
        for file in sorted(cache.glob(f"{module.stem}.*.pyc")):
            relative = file.relative_to(root).as_posix()
            state = folder.state(relative)
            if state is not None and not state.link:
                yield PlannedChange(relative, state, None)


def _emptied(package: ScaffoldedPackage, gone: list[str]) -> tuple[str, ...]:
    """Return the folders to delete if empty: those that ``new`` made, and Python's caches."""
    parents = {parent.as_posix() for path in gone for parent in PurePosixPath(path).parents}
    if package.checkout is None:
        return tuple(sorted(parents))
    mine = set(package.spec.folders)
    if not mine:
        # The package was copied into the checkout by hand: only folders named after it are certainly its own.
        names = {package.spec.value("names.model"), package.spec.value("names.package")}
        mine = {parent for parent in parents if PurePosixPath(parent).name in names}
    caches = {parent for parent in parents if PurePosixPath(parent).name == _CACHE}
    return tuple(sorted((mine | {RUNTIME}) & parents | caches))
