"""The tree that is checked, with the integrations in it."""

from __future__ import annotations

from functools import cached_property

from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.package import CONTRACT_BASES, Package
from scaffold.files.layout import PIPELINES
from scaffold.files.resources import RUNTIME


class Project(CheckedTree):
    """A checkout, or a package alone, and its integrations."""

    @cached_property
    def packages(self) -> list[Package]:
        """The integrations below ``verl_omni/pipelines``, sorted by name."""

        folders: dict[str, list[str]] = {}
        for path in self.files(PIPELINES, ".py"):
            name, slash, _ = path[len(PIPELINES) + 1 :].partition("/")
            if slash and name != RUNTIME:
                folders.setdefault(name, []).append(path)
        found = []
        for name, paths in sorted(folders.items()):
            files = [file for path in paths if (file := self.python(path)) is not None]
            if any(mark in file.data for file in files for mark in CONTRACT_BASES):
                found.append(Package(self, name, files))
        return found
