"""What a path on the command line stands for: a tree, and the packages in it to check."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.package import CONTRACT_BASES, Package
from scaffold.check.model.project import Project
from scaffold.check.model.tree import DiskTree
from scaffold.check.settings import Settings, find_settings
from scaffold.errors import ScaffoldError
from scaffold.files.layout import CHECKOUT, PIPELINES, PROJECT
from scaffold.files.reading import expanded, read_bytes
from scaffold.files.resources import RUNTIME, installed_runtime
from scaffold.target import Checkout


class Target:
    """Part of a tree.

    Args:
        project: the tree.
        packages: the packages to check.
        whole: the whole tree is checked, not just those packages.
        only: paths inside the tree to which findings are limited; empty for no limit.
        settings: of the project that the path lies in.
    """

    def __init__(
        self,
        project: CheckedTree,
        packages: list[Package],
        whole: bool = False,
        only: Sequence[str] = (),
        settings: Settings = Settings(),
    ) -> None:
        self.project, self.packages, self.whole, self.only, self.settings = project, packages, whole, only, settings

    @property
    def newer(self) -> str | None:
        """One line where the checkout is newer than every release that is known: rules may not fit it."""
        tree = self.project.tree
        if not self.project.complete or not isinstance(tree, DiskTree):
            return None
        try:
            checkout = Checkout.open(tree.root)
        except ScaffoldError:
            return None
        return checkout.notes[0] if checkout.newer else None

    def covers(self, path: str) -> bool:
        """Whether findings at a path inside the tree are reported."""
        if self.only:
            return any(path == only or path.startswith(only + "/") for only in self.only)
        if self.whole:
            return True
        folders = {package.path for package in self.packages}
        parts = path.split("/")
        in_package = path.startswith(PIPELINES + "/") and len(parts) > 3
        return "/".join(parts[:3]) in folders if in_package else True


def find_targets(
    paths: Sequence[Path], settings: Settings | None = None, changed: Mapping[Path, bytes] | None = None
) -> list[Target]:
    """Return what the paths stand for; paths of one tree make one target.

    Args:
        paths: packages, checkouts, rendered trees or single files.
        settings: used instead of those that are found on disk.
        changed: resolved path of a file -> content that takes the place of what is on disk.

    Raises:
        ScaffoldError: a path is not there, or holds no integration; settings are wrong.
    """
    targets: dict[Path, Target] = {}
    for path in paths:
        root, target = _find(path, changed or {})
        known = targets.get(root)
        if known is None:
            target.settings = find_settings(path) if settings is None else settings
        targets[root] = target if known is None else _merged(known, target)
    return list(targets.values())


def _find(path: Path, changed: Mapping[Path, bytes]) -> tuple[Path, Target]:
    try:
        resolved = expanded(path).resolve(strict=True)
    except FileNotFoundError:
        hint = "give a package, a checkout of verl-omni or one file"
        raise ScaffoldError(f"{path} does not exist", hint=hint) from None
    except (OSError, RuntimeError) as error:
        raise ScaffoldError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    root = next((folder for folder in (resolved, *resolved.parents) if (folder / PIPELINES).is_dir()), None)
    outside: dict[str, Path] = {}
    if root is None:
        root = next((folder for folder in (resolved, *resolved.parents) if is_project(folder)), None)
        if root is None:
            return _alone(path, resolved, changed)
        outside = {folder.name: folder for folder in sorted((root / PROJECT.packages).iterdir()) if folder.is_dir()}
    if not (root / CHECKOUT.package_folder(RUNTIME)).is_dir():
        outside.setdefault(RUNTIME, installed_runtime())
    mounts = {CHECKOUT.package_folder(name): folder for name, folder in outside.items()}
    project = Project(DiskTree(root, mounts, changed, only=False), outside=outside)
    below = resolved.relative_to(root).as_posix()
    below = "" if below == "." else below
    if project.external and below.startswith(f"{PROJECT.packages}/"):
        below = PIPELINES + below.removeprefix(PROJECT.packages)
    packages = _packages_at(project, below)
    if not packages:
        raise _no_integration(path)
    if below in ("", "verl_omni", PIPELINES):
        return root, Target(project, packages, whole=below == "")
    inside = [package for package in packages if below == package.path]
    return root, Target(project, packages, only=[] if inside else [below])


def is_project(folder: Path) -> bool:
    """Whether a folder is a project that holds an integration outside of verl-omni."""
    if not (folder / "pyproject.toml").is_file():
        return False
    try:
        return any(_looks_like_integration(inside) for inside in (folder / PROJECT.packages).iterdir())
    except OSError:
        return False


def _packages_at(project: Project, below: str) -> list[Package]:
    if below in ("", "verl_omni", PIPELINES):
        return project.packages
    within = [p for p in project.packages if below == p.path or below.startswith(p.path + "/")]
    if within:
        return within
    return [p for p in project.packages if any(below == file.path for file in p.related)]


def _alone(path: Path, resolved: Path, changed: Mapping[Path, bytes]) -> tuple[Path, Target]:
    """A package outside of any checkout, or one file of it."""
    folder = resolved if resolved.is_dir() else resolved.parent
    if not _looks_like_integration(folder):
        raise _no_integration(path)
    # The folder may be a sub-folder of the package's; the outermost that still is Python code is the package.
    while (folder.parent / "__init__.py").is_file() and (folder / "__init__.py").is_file():
        if not _looks_like_integration(folder.parent):
            break
        folder = folder.parent
    mounted = f"{PIPELINES}/{folder.name}"
    mounts = {mounted: folder, CHECKOUT.package_folder(RUNTIME): installed_runtime()}
    project = Project(DiskTree(folder, mounts, changed), alone=True, outside=(folder.name, RUNTIME))
    if not project.packages:
        raise _no_integration(path)
    only = [] if resolved == folder else [f"{mounted}/{resolved.relative_to(folder).as_posix()}"]
    return folder, Target(project, project.packages, only=only)


def _looks_like_integration(folder: Path) -> bool:
    try:
        for file in sorted(folder.glob("*.py")):
            if file.is_file() and _mentions_contract(file):
                return True
    except OSError:
        return False
    return False


def _mentions_contract(file: Path) -> bool:
    try:
        data = read_bytes(file)
    except OSError:
        return False  # an unreadable file is reported later, if the others are an integration
    return any(mark in data for mark in CONTRACT_BASES)


def _no_integration(path: Path) -> ScaffoldError:
    return ScaffoldError(
        f"{path} holds no integration",
        hint=f"give a package below {PIPELINES}, a file of one, or a checkout that has some",
    )


def _merged(first: Target, second: Target) -> Target:
    packages = [*first.packages]
    names = {package.name for package in packages}
    # Both projects read the same tree; the first one's files are kept.
    for package in second.packages:
        own = first.project.package(package.name)
        if package.name not in names and own is not None:
            packages.append(own)
    only = [*first.only, *second.only]
    if not first.only and not second.only:
        return Target(first.project, packages, first.whole or second.whole, settings=first.settings)
    for target in (first, second):
        if not target.only:
            only += [""] if target.whole else [package.path for package in target.packages]
    whole = "" in only
    return Target(first.project, packages, whole, [] if whole else only, first.settings)


def shown_path(project: CheckedTree, path: str) -> str:
    """Return a path as the user is shown it: relative to the working directory where it lies below that."""
    place = project.tree.locate(path)
    return path if place is None else shown(place)


def shown(place: Path) -> str:
    """Return a place on the disk as the user is shown it: relative to the working directory where it lies below it."""
    try:
        return place.relative_to(Path.cwd()).as_posix()
    except ValueError:
        relative = os.path.relpath(place)
        return relative.replace(os.sep, "/") if not relative.startswith("..") else place.as_posix()
