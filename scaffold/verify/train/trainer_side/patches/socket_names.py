"""Names that two runs on one machine share, on whatever device they run."""

from __future__ import annotations

import os
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after


@after("ray.runtime_context", places={"ray/runtime_context.py:RuntimeContext.get_job_id": ("37a9d97cbb6f",)})
def socket_names(module: Any) -> None:
    """verl names sockets in /tmp by Ray's job id, which is 01000000 in every fresh cluster: add the run's own token."""
    original = module.RuntimeContext.get_job_id
    module.RuntimeContext.get_job_id = lambda self: original(self) + os.environ.get("OMNI_SCAFFOLD_TRAIN_RUN", "")
