"""Which accelerators a process sees. Contracts run on the CPU; the one that needs GPUs gets them back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from scaffold.limits import child_process

VISIBLE = "CUDA_VISIBLE_DEVICES"
KEPT = "OMNI_SCAFFOLD_VISIBLE_DEVICES"


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that shows no GPU: a driver that was initialised does not survive the fork of a contract."""
    return {**environment, KEPT: environment.get(VISIBLE, "all"), VISIBLE: ""}


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that ``hidden`` was made from."""
    found = dict(environment)
    kept = found.pop(KEPT, None)
    if kept == "all":
        found.pop(VISIBLE, None)
    elif kept is not None:
        found[VISIBLE] = kept
    return found


def gpu_count() -> int:
    """GPUs that torch can use, asked in a process of its own; 0 at once where there is no driver."""
    if not Path("/dev/nvidiactl").exists():
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    variables = shown(child_process.environment())
    try:
        done = child_process.run_text([sys.executable, "-c", code], seconds=300, variables=variables)
    except child_process.TookTooLong:
        return 0
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0
