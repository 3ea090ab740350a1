"""vllm asks its platform for the memory in use, which its CPU platform cannot say, and vllm-omni asks NVML.

Where the machine has a card, NVML looks for the one that Ray gave the engine: one of those that there are only for Ray.
"""

from __future__ import annotations

from typing import Any

PLACES = {
    "vllm/platforms/interface.py:Platform.get_current_memory_usage": ("105344512613",),
    "vllm_omni/worker/gpu_memory_utils.py:get_process_gpu_memory": ("f14ab8ff1d02", "d10369b9fca0"),
}


def of_platform(module: Any) -> None:
    """Say none."""
    module.Platform.get_current_memory_usage = classmethod(lambda cls, device=None: 0.0)


def of_process(module: Any) -> None:
    """Say that it is unknown, as where there is no NVML."""
    module.get_process_gpu_memory = lambda local_rank: None


HOOKS = {"vllm.platforms.interface": of_platform, "vllm_omni.worker.gpu_memory_utils": of_process}
