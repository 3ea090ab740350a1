"""What goes wrong, or takes too long, where several processes and runs share one small machine."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

QUEUES = "vllm.distributed.device_communicators.shm_broadcast"
MOST = 20  # milliseconds until a reader of the queue looks again whether or not it was told


@after(
    QUEUES,
    places={
        "vllm/distributed/device_communicators/shm_broadcast.py:SpinCondition.__init__": ("33a47ef40a58",),
        "vllm/distributed/device_communicators/shm_broadcast.py:SpinCondition.wait": ("826e440042e8",),
    },
)
def idle_waiting(module: Any) -> None:
    """A reader of the engine's queue asks in a loop for a second before it waits to be told: it waits at once.

    On a machine with a GPU there is a processor free for it; on two it takes the one of those it waits for.
    """
    original = module.SpinCondition.wait

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = -1.0
        original(self, MOST if timeout_ms is None else min(MOST, timeout_ms))

    module.SpinCondition.wait = wait


@after(
    QUEUES, places={"vllm/distributed/device_communicators/shm_broadcast.py:MessageQueue.enqueue": ("9c72450c673e",)}
)
def one_sender(module: Any) -> None:
    """The engine's worker sends from two threads over one ZMQ socket, which is not made for that: one at a time.

    Without the lock a run of 300 requests ended in ``Assertion failed: rc == 0 (src/pipe.cpp:186)``.
    """
    lock = threading.Lock()
    original = module.MessageQueue.enqueue

    def enqueue(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return original(self, *args, **kwargs)

    module.MessageQueue.enqueue = enqueue


@after(
    "vllm_omni.diffusion.diffusion_engine",
    places={"vllm_omni/diffusion/diffusion_engine.py:DiffusionEngine._make_dummy_request": ("", "eb628b4e6f2d")},
)
def small_warm_up(module: Any) -> None:
    """The engine warms up at 512×512, some pipelines at all their frames: minutes on a CPU, at each of three starts.

    It warms up at the run's own size instead, which the smoke script is told. Releases that make that request elsewhere
    are left alone.
    """
    sides = {"height": os.environ.get("HEIGHT", ""), "width": os.environ.get("WIDTH", "")}
    original = getattr(module.DiffusionEngine, "_make_dummy_request", None)
    if original is None or not all(side.isdigit() for side in sides.values()):
        return

    @functools.wraps(original)
    def small(self: Any, **asked: Any) -> Any:
        return original(self, **{**asked, **{name: int(side) for name, side in sides.items()}})

    module.DiffusionEngine._make_dummy_request = small
