"""verl has platforms for CUDA, NPU and ROCm and none for a CPU; ``VERL_PLATFORM=cpu`` chooses this one."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

ZERO = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
NOTHING = (
    "empty_cache",
    "ipc_collect",
    "synchronize",
    "set_device",
    "reset_peak_memory_stats",
    "manual_seed",
    "manual_seed_all",
)
MEMORY = 8 << 30  # what may be planned with; a tiny model comes nowhere near


class Index(str):
    """A device for ``tensor.to()``, and a number in ``f"{device_name}:{device_id}"``."""

    def __format__(self, _: str) -> str:
        return "0"


def device_module() -> types.ModuleType:
    """What verl calls on ``torch.cuda``; ``torch.cpu`` has only some of it."""
    import torch

    module: Any = types.ModuleType("cpu_as_device")
    for name in ZERO:
        setattr(module, name, lambda *_, **__: 0)
    for name in NOTHING:
        setattr(module, name, lambda *_, **__: None)
    module.is_available = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: Index("cpu")
    module.get_device_name = lambda *_: "cpu"
    module.mem_get_info = lambda *_: (MEMORY, MEMORY)
    module.get_rng_state = lambda *_: torch.get_rng_state()
    module.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    return module  # type: ignore[no-any-return]


@after(
    "verl.plugin.platform.platform_manager",
    places={"verl/plugin/platform/platform_base.py:PlatformBase": ("570d7b27efbb",)},
)
def register(manager: Any) -> None:
    """Register the platform ``cpu``."""
    import importlib

    import torch

    base: Any = importlib.import_module("verl.plugin.platform.platform_base").PlatformBase

    class PlatformCPU(base):  # type: ignore[misc]
        """One device, nothing to wait for; Ray is told of as many "GPU" as there are trainer processes."""

        device_name = vendor_name = "cpu"

        def __init__(self) -> None:
            self._module = device_module()

        @property
        def device_module(self) -> types.ModuleType:
            return self._module

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, *_: Any, **__: Any) -> bool:
            return True

        def current_device(self) -> Index:
            return Index("cpu")

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: Any) -> None:
            """There is one."""

        def synchronize(self, device_index: Any = None) -> None:
            """Nothing runs apart."""

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def set_allocator_settings(self, settings: Any) -> None:
            """The allocator has none."""

        def empty_cache(self) -> None:
            """Nothing is cached."""

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        @contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None:
            """There is no profiler."""

        profiler_stop = profiler_start

        def get_device_uuid(self, device_id: Any) -> str:
            return "CPU-0"

        def ray_resource_name(self) -> str:
            return "GPU"

        def ray_noset_envvars(self) -> list[str]:
            return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

        def is_ipc_supported(self) -> bool:
            return False  # weights go through shared memory

        def cudart(self) -> None:
            return None

    # Whatever else a release declares abstract has no meaning here.
    PlatformCPU.__abstractmethods__ = frozenset()
    manager.PlatformRegistry.register(platform="cpu")(PlatformCPU)
