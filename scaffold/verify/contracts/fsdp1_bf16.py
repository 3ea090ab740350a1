"""Sharded with FSDP1 over two processes in bf16, the engine's default strategy for LoRA."""

from __future__ import annotations

from functools import partial

from scaffold.verify.subject.sharded import measure_sharded

ID = "fsdp1-bf16"
TITLE = (
    "under FSDP1 in bf16 with a unit for each LoRA matrix, velocity and gradients are those of the whole module in bf16"
)
PITFALLS = (13, 35)
SECONDS = 120
HALF = True
run = partial(measure_sharded, backend="gloo", strategy=ID)
