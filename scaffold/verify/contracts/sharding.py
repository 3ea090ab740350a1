"""Sharded over two processes: velocity, LoRA and gradients are those of the whole module."""

from __future__ import annotations

from functools import partial
from typing import Any

from scaffold.verify.child.devices import gpu_count
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.sharded import measure_sharded


class OnCpu:
    """FSDP2 in float32."""

    ID = "fsdp2-gloo"
    TITLE = "under FSDP2 over two gloo processes velocity, LoRA and all gradients are those of the whole module"
    PITFALLS = (32, 34, 35)
    SECONDS = 120
    run = partial(measure_sharded, backend="gloo")


class OnGpus:
    """The same on two accelerators."""

    ID = "fsdp2-nccl"
    TITLE = "under FSDP2 over two GPUs velocity, LoRA and all gradients are those of the whole module"
    PITFALLS = (32, 34, 35)
    SECONDS = 180
    MEGABYTES = None

    @staticmethod
    def run(subject: Any) -> Measured:
        """See ``measure_sharded``; the whole module runs on one of the two GPUs."""
        count = gpu_count()
        if count < 2:
            raise NotDrivableError(f"two GPUs are needed, {count} here")
        return measure_sharded(subject, "nccl")


class HalfPrecision:
    """FSDP2 in bf16, with the engine's casts of inputs and a unit for each embedding."""

    ID = "fsdp2-bf16"
    TITLE = (
        "under FSDP2 in bf16, wrapped as verl-omni wraps it, "
        "velocity and gradients are those of the whole module in bf16"
    )
    PITFALLS = (13, 35)
    SECONDS = 120
    HALF = True
    run = partial(measure_sharded, backend="gloo", strategy=ID)


class FirstFsdp:
    """FSDP1 in bf16, the engine's default strategy for LoRA."""

    ID = "fsdp1-bf16"
    TITLE = (
        "under FSDP1 in bf16 with a unit for each LoRA matrix, "
        "velocity and gradients are those of the whole module in bf16"
    )
    PITFALLS = (13, 35)
    SECONDS = 120
    HALF = True
    run = partial(measure_sharded, backend="gloo", strategy=ID)
