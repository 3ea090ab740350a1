"""What has to be set inside the process before the engine is imported; docs/rollout.md gives each reason."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from pathlib import Path
from typing import Any

_kept: list[Any] = []


def before_imports() -> None:
    """Call once, before vllm, transformers or the package are imported."""
    declare_torchvision_operators()
    turn_off_onednn()


def declare_torchvision_operators() -> None:
    """Declare the two operators that torchvision's import registers shapes for, where its binary cannot be loaded."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    binaries = sorted(Path(spec.origin).parent.glob("_C*.so"))
    with contextlib.suppress(OSError):
        for binary in binaries:
            ctypes.CDLL(str(binary))
            return
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)  # the declarations live as long as this object


def turn_off_onednn() -> None:
    """Keep plain linear layers: oneDNN's have no ``weight`` left to load an update into, and abort on mixed dtypes."""
    custom_ops: Any = importlib.import_module("vllm._custom_ops")
    custom_ops._supports_onednn = False
