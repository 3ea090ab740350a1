"""Sharded with FSDP2 over two processes in bf16, with the engine's casts of inputs and a unit for each embedding."""

from __future__ import annotations

from functools import partial

from scaffold.verify.subject.sharded import measure_sharded

ID = "fsdp2-bf16"
TITLE = (
    "under FSDP2 in bf16, wrapped as verl-omni wraps it, velocity and gradients are those of the whole module in bf16"
)
PITFALLS = (13, 35)
SECONDS = 120
HALF = True
run = partial(measure_sharded, backend="gloo", strategy=ID)
