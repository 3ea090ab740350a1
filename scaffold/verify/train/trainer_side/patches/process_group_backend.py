"""verl asks for ``cpu:gloo,<device>:<backend>``, which names the CPU twice here, and torch refuses that."""

from __future__ import annotations

from typing import Any

PLACES = {"verl/utils/distributed.py:initialize_global_process_group_ray": ("31347938cf9d",)}


def patch(module: Any) -> None:
    """Ask for gloo alone."""
    original = module.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: Any = None, backend: str | None = None) -> Any:
        return original(timeout_second, backend or "gloo")

    module.initialize_global_process_group_ray = initialize_global_process_group_ray


HOOKS = {"verl.utils.distributed": patch}
