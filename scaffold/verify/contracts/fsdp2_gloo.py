"""Sharded with FSDP2 over two processes, on the CPU."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured
from scaffold.verify.subject.sharded import measure_sharded

ID = "fsdp2-gloo"
TITLE = "under FSDP2 over two gloo processes velocity, LoRA and all gradients are those of the whole module"
PITFALLS = (32, 34, 35)
SECONDS = 120


def run(subject: Any) -> Measured:
    """See ``measure_sharded``."""
    return measure_sharded(subject, "gloo")
