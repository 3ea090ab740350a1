"""A reader of the engine's queue asks in a loop for a second before it waits to be told, which takes a processor.

On a machine with a GPU there is one free for it; on two processors it takes the one of those it waits for.
"""

from __future__ import annotations

from typing import Any

PLACES = {
    "vllm/distributed/device_communicators/shm_broadcast.py:SpinCondition.__init__": ("33a47ef40a58",),
    "vllm/distributed/device_communicators/shm_broadcast.py:SpinCondition.wait": ("826e440042e8",),
}
MOST = 20  # milliseconds until a reader looks again whether or not it was told


def patch(module: Any) -> None:
    """Wait to be told at once."""
    original = module.SpinCondition.wait

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = -1.0
        original(self, MOST if timeout_ms is None else min(MOST, timeout_ms))

    module.SpinCondition.wait = wait


HOOKS = {"vllm.distributed.device_communicators.shm_broadcast": patch}
