"""A request leaves nothing behind for the next one."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError


def run(subject: Any) -> Measured:
    """The real pipeline is needed."""
    raise NotDrivableError("the pipeline's own constructor and loop are needed: level rollout sends several requests")
