"""What a run is on: a CPU, where verl and vllm-omni have to be patched, or CUDA, where nothing is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scaffold.errors import ScaffoldError
from scaffold.limits import child_process
from scaffold.verify.train.variants import ACTOR, ROLLOUT, Variant

CPU, CUDA = "cpu", "cuda"
NO_UPDATES: Mapping[str, str] = {f"{ACTOR}.optim.lr": "0.0"}


@dataclass(frozen=True)
class Device:
    """One kind of device.

    Attributes:
        name: ``cpu`` or ``cuda``.
        dtype: of rollout and training unless another is asked for.
        rooms: of ``inside`` that are armed in every process.
        variables: of every process.
        overrides: of the trainer, beside those that every run has.
        at_once: runs beside one another.
        kept: how names of the user's variables begin that every process keeps: which cards, and how these talk.
    """

    name: str
    dtype: str
    rooms: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    at_once: int = 1
    kept: tuple[str, ...] = ()


# docs/train.md gives the reason of each setting of the CPU. The engine keeps its weights: it cannot sleep there.
DEVICES = {
    CPU: Device(
        CPU,
        "float32",
        ("patches", "observers"),
        {
            "OMNI_SCAFFOLD_ROLLOUT_ON_CPU": "1",
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "VERL_ENGINE_VENDOR": "nvidia",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "OMP_NUM_THREADS": "1",
        },
        {
            "trainer.device": "cpu",
            f"{ROLLOUT}.free_cache_engine": "False",
            f"+{ROLLOUT}.enable_sleep_mode": "False",
            f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": "64",
        },
        at_once=2,
    ),
    CUDA: Device(
        CUDA,
        "bfloat16",
        ("patches.socket_names", "observers"),
        {"VLLM_HOST_IP": "127.0.0.1"},
        at_once=2,
        kept=("CUDA_VISIBLE_DEVICES", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_"),
    ),
}
# What a later verl than the one that verl-omni pins lacks or asks for, on any device.
NEWER_VERL = "patches.newer_verl"
# What float32 costs where kernels of the engine and of torch add up in another order; measured on an H100: 2.8e-5.
CUDA_FLOAT32_LIMIT = 1e-4


def find_device(name: str) -> Device:
    """Return the device of this name.

    Raises:
        ScaffoldError: there is none.
    """
    if name not in DEVICES:
        raise ScaffoldError(f"there is no device {name!r}", hint=f"there are {' and '.join(DEVICES)}")
    return DEVICES[name]


def card(device: Device) -> str:
    """Say what a run has of a device, for a report: the names of its cards."""
    if device.name == CPU:
        return "a CPU"
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", *(["-i", chosen] if chosen else [])]
    try:
        done = child_process.run_text(query, seconds=30.0)
    except OSError:
        return device.name
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return f"{len(names)} x {names[0]}" if names and not done.returncode else device.name


def on_device(variant: Variant, device: Device, dtype: str | None = None) -> Variant:
    """Return a variant as it runs on a device.

    On CUDA in bfloat16, both sides round on their own: the same run without updates says how much each step costs.

    Args:
        variant: as it runs on a CPU.
        device: where it runs.
        dtype: of rollout and training; by default the variant's on a CPU, and the device's elsewhere.
    """
    if device.name == CPU:
        return variant if dtype is None else replace(variant, dtype=dtype)
    dtype, variant = dtype or device.dtype, replace(variant, sleeps=variant.engines == 0)
    if dtype == "float32":
        limit = max(variant.log_prob_limit, CUDA_FLOAT32_LIMIT)
        reason = "float32 on both sides, with kernels of their own on each" if not variant.floor else None
        return replace(variant, dtype=dtype, log_prob_limit=limit, log_prob_reason=reason or variant.log_prob_reason)
    return replace(
        variant,
        dtype=dtype,
        log_prob_reason="bfloat16 rounds on both sides, and no weight changes",
        floor={**variant.floor, **NO_UPDATES},
    )


def rooms(device: Device, dtype: str, *, pinned_verl: bool) -> list[str]:
    """Return the rooms of ``trainer_side`` that a run arms.

    Args:
        device: where it runs.
        dtype: of the run; in float32 what the source writes out in bfloat16 follows it.
        pinned_verl: whether verl is the commit that verl-omni pins, and no later release.
    """
    if device.name == CPU:
        return list(device.rooms)
    more = ["patches.literal_precision"] if dtype == "float32" else []
    return [*device.rooms, *more, *([] if pinned_verl else [NEWER_VERL])]
