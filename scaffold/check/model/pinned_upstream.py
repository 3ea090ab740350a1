"""The vllm-omni that a package will meet: what the tree pins, and its source where that is at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.source import UndecodableError
from scaffold.check.model.tree import UnreadableError
from scaffold.target.pin import asked_of, pin_of
from scaffold.upstream.at_hand import at_hand
from scaffold.upstream.builds import is_own
from scaffold.upstream.exports import Exports
from scaffold.upstream.source import PACKAGE, UpstreamSource
from scaffold.upstream.versions import is_same

if TYPE_CHECKING:
    from scaffold.check.model.package import Package
    from scaffold.check.model.project import Project
    from scaffold.check.model.tree import Tree

# What was read for the packages of one tree; another run may find more on the machine.
_READ: WeakKeyDictionary[Project, dict[str, Exports | None]] = WeakKeyDictionary()


def pinned(project: Project) -> str | None:
    """Return the version of vllm-omni that the tree pins; None where it pins none."""
    return pin_of(_reader(project))


def asked(project: Project) -> str | None:
    """Return what the tree asks for of vllm-omni: the version that it pins, else a range such as ``~=0.27.0``."""
    return pinned(project) or asked_of(_reader(project))


def _reader(project: Project) -> Callable[[str], str | None]:
    def read(name: str) -> str | None:
        source = project.source(name)
        try:
            return source.plain_text if source is not None else None
        except UndecodableError:
            return None

    return read


def upstream_of(package: Package) -> tuple[str, Exports] | None:
    """Return version and names of the vllm-omni that the package will meet; None where its source is not at hand.

    That is what lies in the tree itself, else what the tree pins, else, in a tree that pins nothing, what the package
    was made for. Nothing is fetched.
    """
    tree = package.project.tree
    made_for = recorded(package, "upstream", "version")
    version = pinned(package.project) or made_for
    # Of a build of one's own, the release that the tree pins tells nothing.
    version = made_for if is_own(made_for) and is_same(made_for, version) else version
    if tree.exists(f"{PACKAGE}/__init__.py"):
        return version or "of this tree", Exports(_TreeSource(tree, version))
    if version is None or tree.locate(package.path) is None:
        return None
    known = _READ.setdefault(package.project, {})
    if version not in known:
        source = at_hand(version)
        known[version] = Exports(source) if source is not None else None
    found = known[version]
    return (version, found) if found is not None else None


class _TreeSource(UpstreamSource):
    """vllm-omni as a folder of the tree that is checked."""

    def __init__(self, tree: Tree, version: str | None) -> None:
        super().__init__(version, "of this tree")
        self._tree = tree

    def exists(self, path: str) -> bool:
        return self._tree.exists(path) and not self._tree.files(path)

    def files(self, prefix: str = "") -> list[str]:
        return [path for path in self._tree.files(prefix.rpartition("/")[0] or PACKAGE) if path.startswith(prefix)]

    def _bytes(self, path: str) -> bytes:
        try:
            data = self._tree.read(path)
        except UnreadableError:
            data = None
        if data is None:
            raise self._missing(path)
        return data
