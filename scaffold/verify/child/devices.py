"""Controls which accelerators a process sees. Contracts run on the CPU, except the one that needs GPUs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from scaffold.limits import child_process

VISIBLE = "CUDA_VISIBLE_DEVICES"
KEPT = "OMNI_SCAFFOLD_VISIBLE_DEVICES"


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without GPUs: an initialised driver does not survive the fork of a contract."""
    return {**environment, KEPT: environment.get(VISIBLE, "all"), VISIBLE: ""}


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that ``hidden`` was given."""
    found = dict(environment)
    kept = found.pop(KEPT, None)
    if kept == "all":
        found.pop(VISIBLE, None)
    elif kept is not None:
        found[VISIBLE] = kept
    return found


def gpu_count() -> int:
    """Return the number of GPUs torch can use, determined in a separate process; 0 if there is no driver."""
    if not Path("/dev/nvidiactl").exists():
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    variables = shown(child_process.environment())
    try:
        done = child_process.run_text([sys.executable, "-c", code], seconds=300, variables=variables)
    except child_process.TookTooLong:
        return 0
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0
