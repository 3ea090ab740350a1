"""A hook for a run: the third image that a rollout adapter makes is profiled, and its kernels are written down by kind.

benchmarks/gpu_tables.py arms it (``--profile``); the figures are in ``profile.json`` of the run's events.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

WATCHED = 3
KINDS = (
    ("attention", ("flash", "fmha", "attention", "sdpa")),
    ("MoT matrix products (Triton)", ("mot_unified_gemm",)),
    ("other matrix products", ("gemm", "nvjet", "cutlass", "cublas", "gemv")),
    ("norms", ("norm",)),
    ("convolutions", ("conv", "cudnn", "implicit", "xmma", "nchw", "nhwc")),
    ("copies", ("memcpy", "memset", "copy", "cat", "index", "gather", "scatter")),
)


def kind_of(kernel: str) -> str:
    """The kind of a kernel, by its name."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS if any(part in name for part in parts)), "elementwise and others")


@after(f"{os.environ.get('OMNI_SCAFFOLD_TRAIN_PACKAGE', '')}.vllm_omni_rollout_adapter")
def watch(module: Any) -> None:
    """Profile one call of the ``forward`` that each rollout adapter of a module has of its own."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__ and "forward" in vars(value):
            value.forward = _profiled(vars(value)["forward"])  # type: ignore[attr-defined]


def _profiled(original: Any) -> Any:
    calls = 0

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        import torch

        if calls != WATCHED + 1:  # the first is the engine's warm-up
            return original(self, *args, **kwargs)
        torch.cuda.synchronize()
        plain = time.perf_counter()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            result = original(self, *args, **kwargs)
            torch.cuda.synchronize()
        write(seen, time.perf_counter() - plain)
        return result

    return forward


def write(seen: Any, seconds: float) -> None:
    """Seconds of all kernels by kind, the largest kernels, and the share of time in which the GPU had one."""
    rows = [(event.key, event.self_device_time_total / 1e6, event.count) for event in seen.key_averages()]
    rows = [row for row in rows if row[1] > 0]
    kinds: dict[str, float] = {}
    for name, spent, _ in rows:
        kinds[kind_of(name)] = kinds.get(kind_of(name), 0.0) + spent
    found = {
        "seconds": seconds,
        "busy": sum(spent for _, spent, _ in rows),
        "kernels": sum(count for _, _, count in rows),
        "kinds": dict(sorted(kinds.items(), key=lambda item: -item[1])),
        "largest": sorted(rows, key=lambda row: -row[1])[:25],
    }
    place = Path(os.environ["OMNI_SCAFFOLD_TRAIN_EVENTS"], "profile.json")
    place.write_text(json.dumps(found, indent=1), encoding="utf-8")
