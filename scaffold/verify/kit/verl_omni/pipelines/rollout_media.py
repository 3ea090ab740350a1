"""By which a rollout adapter declares what media it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omni_scaffold_kit.profile import require_module

require_module(__name__)

Modality = Literal["image", "video", "audio"]


@dataclass(frozen=True)
class MediaSpec:
    """One stream: its kind, samples a second of sound, frames a second of a video."""

    modality: Modality
    sample_rate: int | None = None
    fps: int | None = None


@dataclass(frozen=True)
class DiffusionIOSpec:
    """The stream that rewards see, and those that come after it where media are a tuple."""

    primary: MediaSpec
    auxiliary: tuple[MediaSpec, ...] = ()
