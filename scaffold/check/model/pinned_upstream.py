"""The vllm-omni that a package runs with: the version that the tree pins, and its source where that is available."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.package import Package
from scaffold.check.model.tree import Tree, UnreadableError
from scaffold.target.pin import asked_of
from scaffold.upstream.at_hand import at_hand
from scaffold.upstream.builds import is_own
from scaffold.upstream.exports import Exports
from scaffold.upstream.source import PACKAGE, UpstreamSource
from scaffold.upstream.versions import is_same

# Cached for the packages of one tree; another run may find more sources on the machine.
_READ: WeakKeyDictionary[CheckedTree, dict[str, Exports | None]] = WeakKeyDictionary()


def asked(project: CheckedTree) -> str | None:
    """Return what the tree asks for of vllm-omni: the version that it pins, else a range such as ``~=0.27.0``."""
    return project.pinned or asked_of(project.text)


def upstream_of(package: Package) -> tuple[str, Exports] | None:
    """Return version and exports of the vllm-omni that the package runs with; None where its source is not available.

    It is the one in the tree itself, else the version that the tree pins, else the version that the package was made
    for. Nothing is fetched.
    """
    tree = package.project.tree
    made_for = package.facts.text("upstream", "version")
    version = package.project.pinned or made_for
    # The release that the tree pins says nothing about a build of one's own.
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
