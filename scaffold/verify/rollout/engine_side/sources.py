"""Where ``verl_omni`` and the package come from: a real checkout or the kit, and the tree under verification."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

MODELS = "vllm_omni.diffusion.models."
RUNTIME = "flow_grpo_runtime"
KIT_PACKAGES = ("verl", "verl_omni", "omni_scaffold_kit")
# What a rollout adapter inherits from beside a pipeline, which may lie in a package of its own.
_NO_PIPELINES = frozenset({"verl_omni", "vllm_omni", "vllm", "torch", "diffusers", "transformers"})


def pipelines_of(kind: type) -> list[type]:
    """Classes above a rollout adapter that are vllm-omni's models or of a pipeline's own package, the nearest first."""

    def is_one(base: type) -> bool:
        top = base.__module__.partition(".")[0]
        return base.__module__.startswith(MODELS) or (top not in _NO_PIPELINES and top not in sys.stdlib_module_names)

    return [base for base in kind.__mro__ if is_one(base)]


class FolderFinder(importlib.abc.MetaPathFinder):
    """Serves the named packages from their folders and leaves every other name alone."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        folder = self.folders.get(fullname)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


class MovedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves an old module name from where the code lives now."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self.old else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(self.new)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module was imported under its new name."""


@dataclass(frozen=True)
class Adapters:
    """The two classes that a package registers, and under what."""

    training: Any
    rollout: Any
    architecture: str
    algorithm: str

    @property
    def rollout_path(self) -> str:
        """Dotted path under which the engine imports the rollout adapter."""
        return f"{self.rollout.__module__}.{self.rollout.__qualname__}"

    @property
    def packages(self) -> list[str]:
        """Packages of ``verl_omni.pipelines`` that the adapters and their bases come from."""
        names: dict[str, None] = {}
        for cls in (*self.rollout.__mro__, *self.training.__mro__):
            parts = cls.__module__.split(".")
            if parts[:2] == ["verl_omni", "pipelines"] and len(parts) > 2:
                names[".".join(parts[:3])] = None
        return list(names)

    @property
    def upstream(self) -> Any:
        """The pipeline class above the rollout adapter.

        Raises:
            LookupError: there is none.
        """
        found = pipelines_of(self.rollout)
        if not found:
            raise LookupError(f"{self.rollout.__name__} extends no pipeline of vllm-omni")
        return found[0]

    @property
    def upstream_packages(self) -> list[str]:
        """Model folders of vllm-omni, or packages, that it and the pipelines above it come from, as dotted names."""
        modules = [cls.__module__.split(".") for cls in pipelines_of(self.upstream)]
        return list(dict.fromkeys(".".join(m[:4] if m[0] == "vllm_omni" else m[:1]) for m in modules))


def install_package(root: Path, package: str) -> None:
    """Make ``package``, and the runtime beside it, come from ``root``, whatever else holds packages of that name."""
    folder = root.joinpath(*package.split("."))
    if not (folder / "__init__.py").is_file():
        raise FileNotFoundError(f"{folder} is not a package")
    found = {package: folder, f"{package.rpartition('.')[0]}.{RUNTIME}": folder.with_name(RUNTIME)}
    present = {name: place for name, place in found.items() if (place / "__init__.py").is_file()}
    for name in present:
        if name in sys.modules:
            raise ImportError(f"{name} was imported before its place was known")
    sys.meta_path.insert(0, FolderFinder(present))


def install_kit(kit: Path) -> None:
    """Make ``verl`` and ``verl_omni`` the kit's; the kit's ``vllm_omni`` stays unused, the real one is here."""
    sys.meta_path.insert(0, FolderFinder({name: kit / name for name in KIT_PACKAGES}))


def load_adapters(package: str) -> Adapters:
    """Import the package and find its pair of adapters in the registries.

    Raises:
        LookupError: it registers no pair under one architecture and algorithm.
    """
    importlib.import_module(package)
    base = importlib.import_module("verl_omni.pipelines.model_base")
    training = _own(base.DiffusionModelBase._registry, package)
    rollout = _own(base.VllmOmniPipelineBase._registry, package)
    both = sorted(training.keys() & rollout.keys())
    if not both:
        raise LookupError(f"{package} registers no pair of adapters: {sorted(training)} and {sorted(rollout)}")
    return Adapters(training[both[0]], rollout[both[0]], *both[0])


def _own(registry: dict[tuple[str, str], Any], package: str) -> dict[tuple[str, str], Any]:
    return {key: cls for key, cls in registry.items() if f"{cls.__module__}.".startswith(package + ".")}


def loaded_modules(packages: Iterable[str]) -> list[ModuleType]:
    """Modules of ``packages`` that are imported, each once."""
    wanted = list(packages)
    found = {}
    for name, module in list(sys.modules.items()):
        if module is not None and any(name == package or name.startswith(package + ".") for package in wanted):
            found[id(module)] = module
    return list(found.values())
