"""Noise falls into the SDE window and nowhere else."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError


def run(subject: Any) -> Measured:
    """The real pipeline's loop is needed."""
    raise NotDrivableError("the loop is the pipeline's own: see rollout-window-noise of level rollout")
