"""Results of the engine's worker go into its queue one at a time."""

from __future__ import annotations

import sys
import threading
import time
from types import ModuleType
from typing import Any

import pytest

from flow_grpo_runtime import engine_queue


class MessageQueue:
    """vllm's, which is made for one thread."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.taken: list[int] = []

    def enqueue(self, item: int) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.005)
        self.inside -= 1
        self.taken.append(item)
        return item


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType(engine_queue.QUEUE)
    module.MessageQueue = type("MessageQueue", (MessageQueue,), {"enqueue": MessageQueue.enqueue})
    monkeypatch.setitem(sys.modules, engine_queue.QUEUE, module)
    return module.MessageQueue


def test_two_threads_put_one_after_the_other(queue: Any) -> None:
    engine_queue.lock_queue()
    locked = queue.enqueue
    engine_queue.lock_queue()
    assert queue.enqueue is locked
    made = queue()
    threads = [threading.Thread(target=made.enqueue, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.most == 1
    assert sorted(made.taken) == [0, 1, 2, 3]
    assert made.enqueue(7) == 7


def test_an_engine_without_the_queue_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, engine_queue.QUEUE, ModuleType(engine_queue.QUEUE))
    engine_queue.lock_queue()
    assert not hasattr(sys.modules[engine_queue.QUEUE], "MessageQueue")
