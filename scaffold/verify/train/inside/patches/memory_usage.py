"""vllm asks the platform for the memory in use, which its CPU platform cannot say."""

from __future__ import annotations

from typing import Any

PLACES = {"vllm/platforms/interface.py:Platform.get_current_memory_usage": ("105344512613",)}


def patch(module: Any) -> None:
    """Say none."""
    module.Platform.get_current_memory_usage = classmethod(lambda cls, device=None: 0.0)


HOOKS = {"vllm.platforms.interface": patch}
