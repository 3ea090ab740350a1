"""Sources write a precision or ``autocast`` out; here they follow the run's, as at level ``rollout``.

Which folder of vllm-omni and which package are meant is the run's to say: ``OMNI_SCAFFOLD_TRAIN_SOURCES``.
"""

from __future__ import annotations

import os
from typing import Any

from scaffold.verify.train.trainer_side.hooks import Hooks, of_run


@of_run
def literal_precision() -> Hooks:
    """Change the name ``torch`` inside each module of the run's sources."""
    sources = os.environ.get("OMNI_SCAFFOLD_TRAIN_SOURCES", "").split(",")
    return {f"{name}.*": _follow_precision for name in sources if name}


def _follow_precision(module: Any) -> None:
    from scaffold.verify.rollout.engine_side.precision import follow

    follow(module, os.environ.get("OMNI_SCAFFOLD_TRAIN_DTYPE", "float32"))
