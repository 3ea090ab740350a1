"""The rollout sees the prompt that training sees."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError


def run(subject: Any) -> Measured:
    """Training sees no prompt: what the denoiser was given is recorded."""
    raise NotDrivableError("training takes recorded calls and no token ids; level rollout sends ids to the pipeline")
