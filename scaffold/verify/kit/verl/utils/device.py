"""The accelerator of this machine."""

from __future__ import annotations

import torch


def get_device_name() -> str:
    """Return ``"cuda"``, ``"npu"`` or ``"cpu"``, whichever comes first and is there."""
    if torch.cuda.is_available():
        return "cuda"
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        return "npu"
    return "cpu"
