"""Makes the package importable, with the real ``verl_omni`` if installed, else with the kit."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# Modules of verl-omni that import all of verl; the kit has the parts a package uses.
_NEED_VERL = ("verl_omni.workers", "verl_omni.workers.config", "verl_omni.workers.config.diffusion")


def prepare(root: str, sources: Sequence[str], checkout: bool, kit: str, diffusers: str | None) -> dict[str, str]:
    """Set ``sys.path`` up before anything of the package is imported.

    The ``__init__`` files of ``verl_omni`` and ``verl_omni.pipelines`` are not run: they import every other package,
    whose dependencies may be missing and whose faults are not this package's.

    Args:
        root: of the package's tree.
        sources: the folder from which the package is imported, and that of its runtime where that is a distribution:
            it comes last, for other libraries may be installed beside it, and this Python has its own.
        checkout: whether that is a checkout of verl-omni.
        kit: folder of the contract kit.
        diffusers: folder with another release of diffusers, put first; None for the installed one.

    Returns:
        Where ``verl_omni``, ``verl`` and ``vllm_omni`` come from: ``real`` or ``kit``.
    """
    if diffusers is not None:
        sys.path.insert(0, diffusers)
    installed = None if checkout else _folder_of("verl_omni")
    folders = [root] if checkout else [root, *([str(Path(installed).parent)] if installed else [])]
    real = checkout or installed is not None
    sys.path[1:1] = [folder for folder in sources[:1] if folder != root]
    sys.path += sources[1:]
    sys.path.append(kit)
    origins = {"verl_omni": "real" if real else "kit"}
    for name in ("verl", "vllm_omni"):
        folder = _folder_of(name)
        origins[name] = "real" if folder is not None and Path(folder).parent != Path(kit) else "kit"
    if origins["vllm_omni"] == "real":
        try:
            importlib.import_module("vllm_omni.diffusion.data")
        except Exception:
            # An installation without its engine or an accelerator cannot be imported; the kit replaces it.
            _forget("vllm_omni")
            _from_kit("vllm_omni", kit)
            origins["vllm_omni"] = "kit"
    if not real:
        sys.path.insert(0, root)
        sys.path.insert(0, kit)
        return origins
    for name in ("verl_omni", "verl_omni.pipelines"):
        _bare(name, [str(Path(folder, *name.split("."))) for folder in folders])
    if origins["verl"] == "kit":
        for name in _NEED_VERL:
            _from_kit(name, kit)
    return origins


def _folder_of(name: str) -> str | None:
    """Return the folder of an importable package without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return locations[0] if locations and spec is not None and spec.origin is not None else None


def _bare(name: str, folders: list[str]) -> None:
    """Put a package into ``sys.modules`` with its folders but without running its ``__init__``."""
    module = ModuleType(name)
    module.__path__ = folders
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = folders
    _install(name, module)


def _from_kit(name: str, kit: str) -> None:
    folder = Path(kit, *name.split("."))
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    places = [str(folder)] if folder.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _install(name, module)
    spec.loader.exec_module(module)


def _install(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)


def _forget(name: str) -> None:
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]
