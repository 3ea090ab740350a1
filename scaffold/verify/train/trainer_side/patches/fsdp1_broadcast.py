"""FSDP1 with ``sync_module_states`` refuses parameters on a CPU; gloo broadcasts them all the same."""

from __future__ import annotations

from typing import Any

PLACES = {"torch/distributed/fsdp/_init_utils.py:_check_module_states_for_sync_module_states": ("9e0fe064f75c",)}


def patch(module: Any) -> None:
    """Do not refuse."""
    module._check_module_states_for_sync_module_states = lambda states: None


HOOKS = {"torch.distributed.fsdp._init_utils": patch}
