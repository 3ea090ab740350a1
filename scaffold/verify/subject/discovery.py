"""Finds the classes of a package: the two adapters, the training module, its configuration."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from types import ModuleType
from typing import Any

from scaffold.verify.measured import NotDrivableError


def modules_of(package: str) -> list[ModuleType]:
    """The package's modules that are imported, the package itself first."""
    loaded = [name for name in sys.modules if name == package or name.startswith(package + ".")]
    return [module for name in sorted(loaded) if isinstance(module := sys.modules[name], ModuleType)]


def registered(base: str, package: str) -> dict[tuple[str, str], type]:
    """Classes of ``package`` in the registry of ``verl_omni.pipelines.model_base.<base>``."""
    registry = getattr(sys.modules["verl_omni.pipelines.model_base"], base)._registry
    return {key: kind for key, kind in registry.items() if f"{kind.__module__}.".startswith(f"{package}.")}


def flow_grpo_adapters(package: str) -> tuple[tuple[str, str], Any, Any]:
    """Key, training adapter and rollout adapter; an adapter that is not registered is None.

    Raises:
        NotDrivableError: the package registers no training adapter.
    """
    training, rollout = registered("DiffusionModelBase", package), registered("VllmOmniPipelineBase", package)
    for key in sorted(training, key=lambda key: (key not in rollout, "flow_grpo" not in key, key)):
        return key, training[key], rollout.get(key) or next(iter(rollout.values()), None)
    raise NotDrivableError("no training adapter is registered; see registration")


def require_own_module(training: type) -> None:
    """Raise where the denoiser is a library's, which the engine loads by itself.

    Raises:
        NotDrivableError: no ``build_module`` is the package's, and nothing asks for the base class of modules.
    """
    base = sys.modules["verl_omni.pipelines.model_base"].DiffusionModelBase
    builds = any("build_module" in vars(kind) for kind in training.__mro__ if kind not in base.__mro__)
    if not builds and "verl_omni.pipelines.non_diffusers_model_base" not in sys.modules:
        raise NotDrivableError(
            f"{training.__name__} builds no module of its own: the engine loads one of diffusers, and only modules of a"
            " package are driven here; run its --level rollout, or give it a build_module"
        )


def module_class(package: str, training: type) -> type:
    """The training module's class.

    Raises:
        NotDrivableError: there is none, or several.
    """
    base = sys.modules.get("verl_omni.pipelines.non_diffusers_model_base")
    if base is None:
        raise NotDrivableError("the package does not use NonDiffusersModelBase")
    known = base.NonDiffusersModelBase
    found = {
        value
        for module in modules_of(package)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, known) and value is not known and not inspect.isabstract(value)
    }
    if len(found) > 1:
        named = vars(sys.modules[training.__module__]).values()
        found = {kind for kind in found if kind in named} or found
    if len(found) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in found)) or "none"
        raise NotDrivableError(f"one subclass of NonDiffusersModelBase is needed, the package has: {names}")
    return found.pop()


def config_class(package: str, module: type) -> Any:
    """The dataclass that the training module is built from.

    Raises:
        NotDrivableError: it cannot be told from the annotation of the constructor, or by ``from_model_path``.
    """
    try:
        hints = typing.get_type_hints(module.__init__)  # type: ignore[misc]
    except Exception:
        hints = {}
    annotated = [kind for kind in hints.values() if dataclasses.is_dataclass(kind)]
    if annotated:
        return annotated[0]
    found = {
        value
        for part in modules_of(package)
        for value in vars(part).values()
        if inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, "from_model_path")
    }
    if len(found) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in found)) or "none"
        raise NotDrivableError(f"one dataclass with from_model_path is needed, the package has: {names}")
    return found.pop()
