"""A workaround for vllm-omni's worker, which puts results into one queue of vllm's from two threads."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

QUEUE = "vllm.distributed.device_communicators.shm_broadcast"


def lock_queue() -> None:
    """Let one thread at a time put something into a queue of this process.

    The worker sends a result from the thread that computes and from another that brings it to the host, and the queue
    is made for one: now and then a result is lost, and the training stands still (seen with vllm-omni 0.27.0rc1 on
    CUDA; 0.32.0rc1 has a lock of its own). Does nothing where vllm has no such queue, or a second time.
    """
    try:
        queue: Any = importlib.import_module(QUEUE).MessageQueue
    except (ImportError, AttributeError):
        return
    original = queue.enqueue
    if hasattr(original, "one_at_a_time"):
        return
    lock = threading.Lock()

    @functools.wraps(original)
    def enqueue(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return original(self, *args, **kwargs)

    enqueue.one_at_a_time = True  # type: ignore[attr-defined]
    queue.enqueue = enqueue
