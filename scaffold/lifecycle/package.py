"""A rendered package on disk: its place, its spec, and the files it was wired into."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.files.layout import LAYOUTS, PIPELINES, Layout, layout_at, layout_of
from scaffold.files.reading import expanded
from scaffold.new import package_path, record_paths
from scaffold.new.recorded import from_here, recorded_runtime
from scaffold.plan import wiring_edits
from scaffold.plan.edits import DOCS
from scaffold.plan.folder import contained
from scaffold.plan.transaction import recover_aloud
from scaffold.render.names import validate_model
from scaffold.render.rendered import RenderedFile
from scaffold.render.runtime import is_runtime
from scaffold.render.tree import template_paths
from scaffold.spec import read_spec
from scaffold.spec.lock import LOCK_NAME, SPEC_NAME
from scaffold.spec.model import RESTORE
from scaffold.target import Checkout, profile_by_name
from scaffold.team import PACKAGED, Team, team_for

if TYPE_CHECKING:
    from scaffold.plan.edits import FileEdit
    from scaffold.spec import IntegrationSpec, StoredSpec
    from scaffold.target import Checkout, ContractProfile

REGISTRY = f"{PIPELINES}/__init__.py"
# Values needed to find a package in its tree and to undo its edits.
NEEDED = ("names.model", "names.package", "names.prefix", "target.profile", "upstream.version")


@dataclass(frozen=True)
class ScaffoldedPackage:
    """A package that ``new`` wrote.

    Attributes:
        root: the checkout, or the folder given to ``--out``.
        stored: its ``scaffold.toml`` and ``scaffold.lock.toml``.
        checkout: the checkout, or None for a folder of its own.
        team: presets of its tree, which take precedence over the packaged ones.
    """

    root: Path
    stored: StoredSpec
    checkout: Checkout | None
    team: Team = PACKAGED

    @classmethod
    def open(cls, given: str | Path, *, preset: Path | None = None, packaged: bool = False) -> ScaffoldedPackage:
        """Open a package by its folder, its ``scaffold.toml``, or a tree that holds only this package.

        Leftovers of an interrupted run are handled by `recover`, not here.

        Args:
            given: the path to open.
            preset: file of a preset that takes precedence over all others.
            packaged: ignore presets and templates of the tree and of the user.

        Raises:
            ScaffoldError: ``new`` wrote nothing there, there is more than one package, or the spec is of another
                folder.
        """
        folder = _find(_named(given))
        place = layout_at(folder)
        assert place is not None
        root = place.root(folder)
        shown = _shown(Path(given), folder)
        stored = read_spec(folder / SPEC_NAME, inside=root, shown=shown)
        spec = stored.spec
        for key in NEEDED:
            if not isinstance(spec.value(key), str):
                raise ScaffoldError(f"{shown}: {key} is {spec.value(key)!r}", hint=f"it must be a text; {RESTORE}")
        if spec.value("names.package") != folder.name:
            raise ScaffoldError(
                f"{shown} is the spec of {spec.value('names.package')!r}, and stands in {folder.name}",
                hint="give the folder its name back; `new MODEL` renders under another name",
            )
        _require_names(spec, shown)
        if layout_of(spec.sections.get("target")) is not place:
            written = layout_of(spec.sections.get("target")).packages
            raise ScaffoldError(
                f"{shown} was written for a package in {written}/, and stands in {place.packages}/",
                hint="`omni-scaffold move PACKAGE --out DIR` takes a package out of a checkout",
            )
        team = team_for(root, preset, packaged=packaged)
        package = cls(root, stored, Checkout.open(root) if (root / REGISTRY).is_file() else None, team)
        known = package.own_paths
        foreign = [
            path for path in spec.files if not (_inside(package.path, path) or path in known or is_runtime(path))
        ]
        if foreign:
            lister = shown if stored.lock is None else f"{shown.removesuffix(SPEC_NAME)}{LOCK_NAME}"
            raise ScaffoldError(f"{lister} lists {foreign[0]}, which is not a file of {package.path}", hint=RESTORE)
        return package

    @property
    def spec(self) -> IntegrationSpec:
        """The spec it was rendered from, with what was recorded at the time."""
        return self.stored.spec

    @property
    def layout(self) -> Layout:
        """Where the parts of its tree lie."""
        return layout_of(self.spec.sections.get("target"))

    @property
    def path(self) -> str:
        """The package's folder, relative to the root."""
        return package_path(self.spec)

    @cached_property
    def own_paths(self) -> frozenset[str]:
        """Every path the templates render for a package of this name; the list in a spec is not trusted."""
        names = self.spec.sections["names"]
        return template_paths(str(names["model"]), str(names["package"]), layout=self.layout)

    @property
    def files(self) -> Mapping[str, str]:
        """Path to recorded digest of the package's files, including the shared runtime.

        If another package has written a newer runtime, its digest counts.
        """
        own = {path: digest for path, digest in self.spec.files.items() if path in self.own_paths}
        shared = {path: digest for path, digest in self.spec.files.items() if is_runtime(path)}
        return {**own, **shared, **recorded_runtime(self.root, shared)}

    @property
    def from_here(self) -> str:
        """The package's folder as the next command takes it, relative where it lies below the working directory."""
        return from_here(self.root, self.path)

    @property
    def spec_path(self) -> str:
        """Its ``scaffold.toml``, relative to the root."""
        return record_paths(self.spec)[0]

    @property
    def lock_path(self) -> str:
        """Its ``scaffold.lock.toml``, relative to the root; a package of an older version has none."""
        return record_paths(self.spec)[1]

    @property
    def profile(self) -> ContractProfile:
        """The contract profile that the package was rendered for, as the spec recorded it."""
        profile, target = profile_by_name(str(self.spec.value("target.profile"))), self.spec.sections["target"]
        # Paths with the model's name in them stay the profile's; all else is what the checkout showed.
        own = {field.name for field in fields(profile)} - {"example_readme", "docs_link"}
        seen: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in target.items() if key in own
        }
        return replace(profile, **seen).placed(self.layout, seen.get("runtime"))

    def edits(self) -> tuple[FileEdit, ...]:
        """Return the edits of the target's own files that ``new`` made for the recorded files.

        Raises:
            ScaffoldError: the lock lacks a value the edits are made from.
        """
        # Only links are rendered below docs/; where they lead does not matter here.
        files: Mapping[str, RenderedFile] = {
            path: RenderedFile(link_to="." if path.startswith(DOCS) else None) for path in self.files
        }
        spec = self.spec if self.stored.rendered is None else replace(self.spec, sections=self.stored.rendered)
        try:
            return wiring_edits(files, spec.context())
        except (KeyError, TypeError) as error:
            problem = f"{self.spec_path.removesuffix(SPEC_NAME)}{LOCK_NAME} does not say what was rendered: {error}"
            raise ScaffoldError(problem, hint=RESTORE) from None


def recover_around(given: str | Path, *, dry: bool = False) -> None:
    """Call `recover_aloud` for the tree of a package.

    A killed run may have removed the package itself, so the tree is recognized by its shape.
    """
    path = _real(_named(given))
    for candidate in (path, *path.parents):
        if any((candidate / layout.packages).is_dir() for layout in LAYOUTS.values()):
            recover_aloud(candidate, dry=dry)
            return


def specs_below(root: Path) -> Iterator[Path]:
    """Yield the ``scaffold.toml`` of each package of a tree."""
    for layout in LAYOUTS.values():
        yield from root.glob(f"{layout.packages}/*/{SPEC_NAME}")


def _require_names(spec: IntegrationSpec, shown: str) -> None:
    """Require names that are safe in paths: they must not lead into another package."""
    model, package, algorithm = (str(spec.value(f"names.{key}")) for key in ("model", "package", "algorithm"))
    try:
        validate_model(model)
    except ScaffoldError as error:
        raise ScaffoldError(f"{shown}: names.model: {error.message}", hint=RESTORE) from None
    if package != f"{model}_{algorithm}":
        wanted = f"it must be names.model and names.algorithm, {model}_{algorithm}"
        raise ScaffoldError(f"{shown}: names.package is {package!r}", hint=f"{wanted}; {RESTORE}")


def _inside(folder: str, path: str) -> bool:
    return contained(path).startswith(f"{folder}/")


def _named(given: str | Path) -> Path:
    if not str(given).strip():
        raise ScaffoldError("PACKAGE is empty", hint="name the package's folder")
    return expanded(given)


def _real(given: Path) -> Path:
    """Return the resolved folder of a package; ``scaffold.toml`` may itself be a link."""
    return Path(os.path.realpath(given.parent if given.name == SPEC_NAME else given))


def _shown(given: Path, folder: Path) -> str:
    """Return the path of the spec as the user would write it."""
    if given.name == SPEC_NAME:
        return str(given)
    return str(given / folder.relative_to(_real(expanded(given))) / SPEC_NAME)


def _find(given: Path) -> Path:
    """Return the absolute folder of the given package."""
    path = _real(given)
    found = [path] if (path / SPEC_NAME).is_file() else sorted(place.parent for place in specs_below(path))
    if len(found) > 1:
        names = ", ".join(folder.relative_to(path).as_posix() for folder in found)
        raise ScaffoldError(f"{given} holds several packages: {names}", hint="name one of them")
    if not path.exists():
        raise ScaffoldError(
            f"no such folder here: {given}", hint=f"name one that is there, {PIPELINES}/<package> or src/<package>"
        )
    if not found:
        hint = f"name the folder of a package that `new` wrote, {PIPELINES}/<package> or src/<package>"
        raise ScaffoldError(f"{given} holds no {SPEC_NAME}", hint=hint)
    if layout_at(found[0]) is not None:
        return found[0]
    below = " or ".join(f"{layout.packages}/" for layout in LAYOUTS.values())
    raise ScaffoldError(f"{given} is not below {below}", hint="a package is updated and removed in its tree")
