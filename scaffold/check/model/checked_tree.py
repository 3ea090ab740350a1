"""The files of the tree that is checked, read when first asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from functools import cached_property
from typing import Any

from scaffold.check.model.names import TreeNames
from scaffold.check.model.python import PythonFile
from scaffold.check.model.registry import Registry, read_registry
from scaffold.check.model.shell import ShellScript, presets
from scaffold.check.model.source import PATCH, PatchedFile, SourceFile, read_patch
from scaffold.check.model.tree import Tree, UnreadableError
from scaffold.files.layout import PIPELINES, PROJECT
from scaffold.files.resources import RUNTIME
from scaffold.target.pin import pin_of

REGISTRY = f"{PIPELINES}/__init__.py"


class CheckedTree(TreeNames):
    """All files below one root, read when first asked for.

    Args:
        tree: where the files are.
        alone: the tree is only a package, without a checkout around it.
        outside: packages of a project of their own, and the runtime, which are imported by these names.
    """

    def __init__(self, tree: Tree, *, alone: bool = False, outside: Collection[str] = ()) -> None:
        super().__init__(outside)
        self.external = bool(self.outside - {RUNTIME})
        self.tree = tree
        self.alone = alone
        self._python: dict[str, PythonFile | None] = {}
        self._sources: dict[str, SourceFile | None] = {}
        self._listed: dict[str, list[str]] = {}
        self.unreadable: dict[str, str] = {}

    @property
    @abstractmethod
    def packages(self) -> list[Any]:
        """The integrations below ``verl_omni/pipelines``, each a `Package`."""

    def package(self, name: str) -> Any:
        """Return the integration of that folder name; None where there is none."""
        return next((package for package in self.packages if package.name == name), None)

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
        """Whether the tree is a whole checkout, so that an absent file is really missing."""
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
        found = self.source(path)
        return found if isinstance(found, ShellScript) else None

    def text(self, path: str) -> str:
        """Return the text of a file; empty where there is none, or it is not text."""
        file = self.source(path)
        return "" if file is None else file.readable

    @cached_property
    def pinned(self) -> str | None:
        """The version of vllm-omni that the tree pins; None where it pins none."""
        return pin_of(self.text)

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
    def registry(self) -> Registry | None:
        """What ``verl_omni/pipelines/__init__.py`` imports and exports; None where it is not there."""
        file = self.python(REGISTRY)
        return read_registry(file) if file is not None else None

    # Scripts

    @cached_property
    def example_scripts(self) -> list[ShellScript]:
        """The shell scripts below ``examples/``, or of a project below ``scripts/``."""
        return self._scripts(PROJECT.launch.rstrip("/") if self.external else "examples")

    @cached_property
    def e2e_scripts(self) -> list[ShellScript]:
        """The shell scripts of ``tests/special_e2e/``, or of a project of ``tests/smoke/``."""
        return self._scripts(PROJECT.smoke.rstrip("/") if self.external else "tests/special_e2e")

    @cached_property
    def runners(self) -> list[SourceFile]:
        """The shell scripts of ``tests/gpu_smoke/`` and ``tests/npu_smoke/``, also where only a patch shows them."""
        paths = [*self.files("tests/gpu_smoke", ".sh"), *self.files("tests/npu_smoke", ".sh")]
        runs = [p for p in self.patch if p.startswith(("tests/gpu_smoke/", "tests/npu_smoke/")) and p.endswith(".sh")]
        paths += [path for path in runs if path not in paths]
        return [file for path in paths if (file := self.source(path)) is not None]

    def _scripts(self, folder: str) -> list[ShellScript]:
        found = [script for path in self.files(folder, ".sh") if (script := self.script(path)) is not None]
        for script in found:
            if b"-config-name" in script.data or b"-cn" in script.data:
                names = [path for path in self.files("examples", ".yaml") if "deploy" not in path]
                script.presets = presets(script, [file for path in names if (file := self.source(path)) is not None])
        return found
