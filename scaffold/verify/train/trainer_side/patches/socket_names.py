"""verl names sockets in /tmp by Ray's job id, which is 01000000 in every fresh cluster: two runs on a host collide."""

from __future__ import annotations

import os
from typing import Any

PLACES = {"ray/runtime_context.py:RuntimeContext.get_job_id": ("37a9d97cbb6f",)}


def patch(module: Any) -> None:
    """Add the run's own token."""
    original = module.RuntimeContext.get_job_id
    module.RuntimeContext.get_job_id = lambda self: original(self) + os.environ.get("OMNI_SCAFFOLD_TRAIN_RUN", "")


HOOKS = {"ray.runtime_context": patch}
