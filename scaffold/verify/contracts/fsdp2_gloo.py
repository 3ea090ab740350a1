"""Sharded with FSDP2 over two processes, on the CPU."""

from __future__ import annotations

from functools import partial

from scaffold.verify.subject.sharded import measure_sharded

ID = "fsdp2-gloo"
TITLE = "under FSDP2 over two gloo processes velocity, LoRA and all gradients are those of the whole module"
PITFALLS = (32, 34, 35)
SECONDS = 120
run = partial(measure_sharded, backend="gloo")
