"""The CPU as a platform of vllm-omni, which ships none: one device, nothing to wait for, plain attention."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

_vllm: Any = importlib.import_module("vllm.platforms.cpu")
_omni: Any = importlib.import_module("vllm_omni.platforms.interface")

# What the engine may plan with; a tiny model comes nowhere near.
ASSUMED_MEMORY = 8 * 1024**3


class CpuPlatform(_omni.OmniPlatform, _vllm.CpuPlatform):  # type: ignore[misc]
    """What vllm says about a CPU, and answers to what vllm-omni asks beyond that."""

    _omni_enum = _omni.OmniPlatformEnum.OOT

    @classmethod
    def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def get_device_count(cls) -> int:
        return int(os.environ.get("OMNI_SCAFFOLD_ROLLOUT_DEVICES", "1"))

    @classmethod
    def get_device_version(cls) -> None:
        return None

    @classmethod
    def set_device(cls, device: Any) -> None:
        return None

    @classmethod
    def synchronize(cls) -> None:
        return None

    @classmethod
    def empty_cache(cls) -> None:
        return None

    @classmethod
    def reset_peak_memory_stats(cls, *args: Any, **kwargs: Any) -> None:
        return None

    @classmethod
    def max_memory_allocated(cls, *args: Any, **kwargs: Any) -> int:
        return 0

    @classmethod
    def max_memory_reserved(cls, *args: Any, **kwargs: Any) -> int:
        return 0

    @classmethod
    def get_free_memory(cls, device: Any = None) -> int:
        return ASSUMED_MEMORY

    @classmethod
    def get_device_memory(cls, device: Any = None) -> tuple[int, int]:
        return ASSUMED_MEMORY, ASSUMED_MEMORY

    @classmethod
    def supports_torch_inductor(cls) -> bool:
        return False

    @classmethod
    def get_diffusion_attn_backend_cls(cls, *args: Any, **kwargs: Any) -> str:
        sdpa: Any = importlib.import_module("vllm_omni.diffusion.attention.backends.sdpa")
        # It has a branch for each platform and none for others; this one calls torch and nothing else.
        sdpa.SDPAImpl.forward = sdpa.SDPAImpl.forward_cuda
        return f"{sdpa.__name__}.SDPABackend"
