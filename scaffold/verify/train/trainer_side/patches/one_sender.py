"""The engine's worker sends from two threads over one ZMQ socket, which is not made for that.

Without the lock a run of 300 requests ended in ``Assertion failed: rc == 0 (src/pipe.cpp:186)``.
"""

from __future__ import annotations

import threading
from typing import Any

PLACES = {"vllm/distributed/device_communicators/shm_broadcast.py:MessageQueue.enqueue": ("9c72450c673e",)}


def patch(module: Any) -> None:
    """One sender at a time."""
    lock = threading.Lock()
    original = module.MessageQueue.enqueue

    def enqueue(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return original(self, *args, **kwargs)

    module.MessageQueue.enqueue = enqueue


HOOKS = {"vllm.distributed.device_communicators.shm_broadcast": patch}
