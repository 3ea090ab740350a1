"""``omni-scaffold move``: takes a package out of a checkout into a project of its own, with a person's edits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.files.layout import PROJECT, Move
from scaffold.files.reading import expanded
from scaffold.grade import is_ported
from scaffold.grade.rendering import ported_again
from scaffold.lifecycle.merge_files import merge_text
from scaffold.lifecycle.package import ScaffoldedPackage, recover_around
from scaffold.new import render_files, render_package
from scaffold.new.place import with_place
from scaffold.plan.output import plan_output, states
from scaffold.plan.plan import Plan
from scaffold.render import RenderedFile

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

SCHEMA = 1


@dataclass(frozen=True)
class Moved:
    """A planned move; nothing of the checkout changes.

    Attributes:
        package: what is taken out.
        spec: of the project.
        plan: the files of the project.
        merged: files that hold edits of a person.
        marked: files with conflict markers, which a person has to resolve.
    """

    package: ScaffoldedPackage
    spec: IntegrationSpec
    plan: Plan
    merged: tuple[str, ...]
    marked: tuple[str, ...]

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Return the stable answer of ``move --format json``."""
        return {
            "schema": SCHEMA,
            "package": {"name": self.spec.value("names.package"), "path": PROJECT.package_folder(self._name)},
            "from": self.package.path,
            "merged": list(self.merged),
            "undecided": list(self.marked),
            "written": written,
            **self.plan.to_json(),
        }

    @property
    def _name(self) -> str:
        return str(self.spec.value("names.package"))

    def check_complete(self) -> None:
        """Raise `ConflictError` where a person has to resolve a merge."""
        if self.marked:
            raise ConflictError(f"conflict markers in {', '.join(self.marked)}", hint="resolve them in the project")


def plan_move(given: str | Path, out: str | Path, *, force: bool = False, dry: bool = False) -> Moved:
    """Plan a project with the files of a package: as they are rendered there, with what a person changed here.

    Args:
        given: the package, in a checkout or in a tree for one.
        out: folder of the project.
        force: overwrite what lies there.
        dry: leave an interrupted run as it is.

    Raises:
        ScaffoldError: there is no such package, it is a project already, or the folder holds something else.
    """
    recover_around(given, dry=dry)
    package = ScaffoldedPackage.open(given)
    if package.layout.external:
        raise ScaffoldError(f"{given} is a project of its own already", hint="copy its folder")
    spec = package.spec
    port = ported_again(spec) if is_ported(spec) and spec.value("port.entry") else None
    before = render_files(spec, [], port)
    files, moved_spec = render_package(with_place(spec, package.profile.placed(PROJECT)), [], None, port)
    names = spec.sections["names"]
    move = Move(PROJECT, str(names["model"]), str(names["package"]), beside=False)
    merged: list[str] = []
    marked: list[str] = []
    for path, state in states(package.root, sorted({*package.spec.files, *_others(package)})).items():
        target = move.path(path)
        if state is None or state.link or (target == path and not path.startswith("src/")):
            continue
        mine = move.text(state.content.decode("utf-8", "replace"))
        base = move.text(before[path].content) if path in before else None
        if base is None and target not in files:
            files[target] = RenderedFile(mine, executable=state.executable)  # a file of the person's own
        elif base is not None and mine != base and target in files:
            texts = (mine, base, files[target].content)
            found = merge_text(*(text.encode() for text in texts), labels=("edited here", "rendered", "project"))
            files[target] = replace(files[target], content=found.content.decode())
            (marked if found.conflicts else merged).append(target)
    plan = plan_output(files, (), expanded(out), profile=package.profile, force=force)
    return Moved(package, moved_spec, plan, tuple(merged), tuple(marked))


def _others(package: ScaffoldedPackage) -> list[str]:
    """Files in the package's folder that nothing rendered."""
    folder = package.root / package.path
    found = (path.relative_to(package.root).as_posix() for path in folder.rglob("*") if path.is_file())
    own = {package.spec_path, package.lock_path}
    return [path for path in found if path not in own and "__pycache__" not in PurePosixPath(path).parts]
