"""Sharded with FSDP2 over two accelerators."""

from __future__ import annotations

from typing import Any

from scaffold.verify.child.devices import gpu_count
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.sharded import measure_sharded

ID = "fsdp2-nccl"
TITLE = "under FSDP2 over two GPUs velocity, LoRA and all gradients are those of the whole module"
PITFALLS = (32, 34, 35)
SECONDS = 180
MEGABYTES = None


def run(subject: Any) -> Measured:
    """See ``measure_sharded``; the whole module runs on one of the two GPUs."""
    count = gpu_count()
    if count < 2:
        raise NotDrivableError(f"two GPUs are needed, {count} here")
    return measure_sharded(subject, "nccl")
