"""The tree that a package belongs to: a checkout of verl-omni, a rendered tree, or a package alone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from scaffold.check.model.patch import PATCH, PatchedFile, read_patch
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.resolution import Resolution
from scaffold.check.model.source import SourceFile
from scaffold.check.model.tree import Tree, UnreadableError
from scaffold.files.resources import RUNTIME

if TYPE_CHECKING:
    from scaffold.check.model.package import Package
    from scaffold.check.model.registry import Registry
    from scaffold.check.model.shell import ShellScript

PIPELINES = "verl_omni/pipelines"
REGISTRY = f"{PIPELINES}/__init__.py"
# What only an integration mentions; the text is searched, so that a file that does not parse counts too.
CONTRACT_BASES = (
    b"DiffusionModelBase",
    b"DiffusionI2IModelBase",
    b"NonDiffusersModelBase",
    b"VllmOmniPipelineBase",
    b"OmniModelBase",
    b"OmniRolloutPipelineBase",
)


class Project(Resolution):
    """All files below one root, read when first asked for.

    Args:
        tree: where the files are.
        alone: the tree is only a package; what a checkout has around it is not there.
    """

    def __init__(self, tree: Tree, *, alone: bool = False) -> None:
        super().__init__()
        self.tree = tree
        self.alone = alone
        self._python: dict[str, PythonFile | None] = {}
        self._sources: dict[str, SourceFile | None] = {}
        self._listed: dict[str, list[str]] = {}
        self.unreadable: dict[str, str] = {}

    # Files

    @cached_property
    def patch(self) -> dict[str, PatchedFile]:
        """The edits of the patch beside a rendered tree, by path; empty without one."""
        data = self._read(PATCH)
        if not data:
            return {}
        return read_patch(data.decode("utf-8", "replace").replace("\r\n", "\n"))

    @cached_property
    def rendered(self) -> bool:
        """Whether the tree is what ``new --out`` writes: files and a patch, but no checkout."""
        return bool(self.patch) and not self.tree.exists(REGISTRY)

    @property
    def complete(self) -> bool:
        """Whether a whole checkout is there: what is absent is really missing."""
        return not self.alone and not self.rendered and self.tree.exists(REGISTRY)

    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the paths of the files below a folder; links among them."""
        if folder not in self._listed:
            self._listed[folder] = self.tree.files(folder)
        return [path for path in self._listed[folder] if path.endswith(suffix)]

    def source(self, path: str) -> SourceFile | None:
        """Return a file of any kind, also one of which only a patch shows lines; None where there is none."""
        if path.endswith(".py"):
            return self.python(path)
        if path not in self._sources:
            data, patched = self._content(path)
            kind = SourceFile
            if path.endswith(".sh") and patched is None:
                from scaffold.check.model.shell import ShellScript

                kind = ShellScript
            self._sources[path] = None if data is None else kind(path, data, patched)
        return self._sources[path]

    def python(self, path: str) -> PythonFile | None:
        """Return a Python file; None where there is none."""
        if path not in self._python:
            data, patched = self._content(path)
            self._python[path] = None if data is None else PythonFile(path, data, self, patched)
        return self._python[path]

    def script(self, path: str) -> ShellScript | None:
        """Return a shell script; None where there is none."""
        from scaffold.check.model.shell import ShellScript

        found = self.source(path)
        return found if isinstance(found, ShellScript) else None

    @property
    def read_files(self) -> list[SourceFile]:
        """Every file that has been read."""
        return [file for file in (*self._python.values(), *self._sources.values()) if file is not None]

    def _content(self, path: str) -> tuple[bytes | None, PatchedFile | None]:
        """Return a file's bytes; where only a patch shows lines of it, those, and the patch."""
        data = self._read(path)
        patched = self.patch.get(path) if data is None else None
        return (data, None) if patched is None else (patched.text.encode(), patched)

    def _read(self, path: str) -> bytes | None:
        try:
            return self.tree.read(path)
        except UnreadableError as error:
            self.unreadable[path] = str(error)
            return None

    # Packages

    @cached_property
    def packages(self) -> list[Package]:
        """The integrations below ``verl_omni/pipelines``, sorted by name."""
        from scaffold.check.model.package import Package

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

    def package(self, name: str) -> Package | None:
        """Return the integration of that folder name."""
        return next((package for package in self.packages if package.name == name), None)

    @cached_property
    def registry(self) -> Registry | None:
        """What ``verl_omni/pipelines/__init__.py`` imports and exports; None where it is not there."""
        from scaffold.check.model.registry import read_registry

        file = self.python(REGISTRY)
        return read_registry(file) if file is not None else None

    # Scripts

    @cached_property
    def example_scripts(self) -> list[ShellScript]:
        """The shell scripts below ``examples/``."""
        return self._scripts("examples")

    @cached_property
    def e2e_scripts(self) -> list[ShellScript]:
        """The shell scripts of ``tests/special_e2e/``."""
        return self._scripts("tests/special_e2e")

    @cached_property
    def runners(self) -> list[SourceFile]:
        """The shell scripts of ``tests/gpu_smoke/`` and ``tests/npu_smoke/``, also where only a patch shows them."""
        paths = [*self.files("tests/gpu_smoke", ".sh"), *self.files("tests/npu_smoke", ".sh")]
        runs = [p for p in self.patch if p.startswith(("tests/gpu_smoke/", "tests/npu_smoke/")) and p.endswith(".sh")]
        paths += [path for path in runs if path not in paths]
        return [file for path in paths if (file := self.source(path)) is not None]

    def _scripts(self, folder: str) -> list[ShellScript]:
        from scaffold.check.model.scripts import presets

        found = [script for path in self.files(folder, ".sh") if (script := self.script(path)) is not None]
        for script in found:
            if b"-config-name" in script.data or b"-cn" in script.data:
                names = [path for path in self.files("examples", ".yaml") if "deploy" not in path]
                script.presets = presets(script, [file for path in names if (file := self.source(path)) is not None])
        return found
