"""Entry point of vllm-omni's platform plugins: offers a CPU, and only when asked to."""

from __future__ import annotations

import os

VARIABLE = "OMNI_SCAFFOLD_ROLLOUT_ON_CPU"


def plugin() -> str | None:
    """Return the dotted path of the platform, or None, which leaves vllm-omni's own choice alone."""
    return "omni_scaffold_cpu_platform.CpuPlatform" if os.environ.get(VARIABLE) == "1" else None
