"""Weights on their way to engines apart from training, through a file of the run: verl has ways for accelerators alone.

An asynchronous run names this module in its settings, and verl imports it wherever weights are sent or received.
"""

from __future__ import annotations

import importlib
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

_base: Any = importlib.import_module("verl.checkpoint_engine")
SECONDS = 300.0  # until what is sent has come; the trainer's own limits are longer


@_base.CheckpointEngineRegistry.register("files")
class FileTransfer(_base.CheckpointEngine):  # type: ignore[misc]
    """One end of it; the first process of training writes, every rank of an engine reads."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.is_master = is_master
        self.file = Path()

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        file = str(Path(tempfile.gettempdir(), f"weights-{uuid.uuid4().hex}"))
        return {"file": [file] * actor_wg_world_size}, {"file": [file] * rollout_world_size}

    def init_process_group(self, file: str) -> None:
        self.file = Path(file)

    def finalize(self) -> None:
        self.file.unlink(missing_ok=True)

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        import torch

        # Gathering is done by all processes together, also those that write nothing.
        found = [(name, value.detach().clone()) for name, value in weights]
        if self.is_master:
            written = self.file.with_suffix(".tmp")
            torch.save(found, written)
            written.replace(self.file)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, Any]]:
        import torch

        begun = time.monotonic()
        while not self.file.exists():
            if time.monotonic() - begun > SECONDS:
                raise TimeoutError(f"no weights came within {SECONDS:.0f} s")
            time.sleep(0.1)  # this process does nothing else meanwhile
        for name, value in torch.load(self.file, weights_only=True):
            yield name, value
