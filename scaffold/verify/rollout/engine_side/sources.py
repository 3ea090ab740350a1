"""Where ``verl_omni`` and the package come from: a real checkout or the kit, and the tree under verification."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from scaffold.algorithms import FLOW_GRPO

MODELS = "vllm_omni.diffusion.models."
RUNTIME = "flow_grpo_runtime"
KIT_PACKAGES = ("verl", "verl_omni", "omni_scaffold_kit")
# What a rollout adapter inherits from beside a pipeline, which may lie in a package of its own.
_NO_PIPELINES = frozenset({RUNTIME, "verl_omni", "vllm_omni", "vllm", "torch", "diffusers", "transformers"})


def pipelines_above(adapter: type) -> list[type]:
    """Classes above a rollout adapter that are vllm-omni's models or of a pipeline's own package, the nearest first."""
    own = adapter.__module__.partition(".")[0]
    return [kind for kind in _pipelines_of(adapter) if kind.__module__.partition(".")[0] != own]


def _pipelines_of(kind: type) -> list[type]:
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
    others: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # pairs for other algorithms

    def of(self, algorithm: str) -> tuple[Any, Any] | None:
        """The classes for training and rollout that are registered for an algorithm."""
        return (self.training, self.rollout) if algorithm == self.algorithm else self.others.get(algorithm)

    @property
    def rollout_path(self) -> str:
        """Dotted path under which the engine imports the rollout adapter."""
        return f"{self.rollout.__module__}.{self.rollout.__qualname__}"

    @property
    def packages(self) -> list[str]:
        """Packages that the adapters and their bases come from, those of ``verl_omni.pipelines`` or outside of it."""
        names: dict[str, None] = {}
        outside = {RUNTIME, *(kind.__module__.partition(".")[0] for kind in (self.rollout, self.training))}
        for cls in (*self.rollout.__mro__, *self.training.__mro__):
            parts = cls.__module__.split(".")
            if parts[:2] == ["verl_omni", "pipelines"] and len(parts) > 2:
                names[".".join(parts[:3])] = None
            elif parts[0] in outside - {"verl_omni"}:
                names[parts[0]] = None
        return list(names)

    @property
    def upstream(self) -> Any:
        """The pipeline class above the rollout adapter.

        Raises:
            LookupError: there is none.
        """
        found = pipelines_above(self.rollout)
        if not found:
            raise LookupError(f"{self.rollout.__name__} extends no pipeline of vllm-omni")
        return found[0]

    @property
    def upstream_packages(self) -> list[str]:
        """Model folders of vllm-omni, or packages, that it and the pipelines above it come from, as dotted names."""
        modules = [cls.__module__.split(".") for cls in _pipelines_of(self.upstream)]
        return list(dict.fromkeys(".".join(m[:4] if m[0] == "vllm_omni" else m[:1]) for m in modules))


def install_package(root: Path, package: str, runtime: Path | None = None) -> None:
    """Make ``package`` and its runtime come from their folders, whatever else holds packages of these names.

    Args:
        root: the folder from which the package is imported.
        package: its dotted name.
        runtime: folder of the runtime where it is a distribution; None where it lies beside the package.
    """
    folder = root.joinpath(*package.split("."))
    if not (folder / "__init__.py").is_file():
        raise FileNotFoundError(f"{folder} is not a package")
    beside = {f"{package.rpartition('.')[0]}.{RUNTIME}": folder.with_name(RUNTIME)}
    found = {package: folder, **(beside if runtime is None else {RUNTIME: runtime})}
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
    # FlowGRPO's first: a package may have others for other algorithms, on the same pipeline.
    both = sorted(training.keys() & rollout.keys(), key=lambda key: (key[1] != FLOW_GRPO, key))
    if not both:
        raise LookupError(f"{package} registers no pair of adapters: {sorted(training)} and {sorted(rollout)}")
    others = {key[1]: (training[key], rollout[key]) for key in both[1:] if key[0] == both[0][0]}
    return Adapters(training[both[0]], rollout[both[0]], *both[0], others)


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
