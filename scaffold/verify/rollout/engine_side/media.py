"""Images and sounds that a request brings as the agent loop sends them, small and always the same."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RATE = 16_000  # samples a second
SAMPLES = 4_000  # a quarter of a second of speech features: one clip of a few frames


def media(kinds: Iterable[str], folder: Path, height: int, width: int) -> dict[str, Any]:
    """What a request holds under ``multi_modal_data``: an image as it is, of a sound the path of its file.

    Args:
        kinds: ``image``, ``audio``.
        folder: where a sound's file is, or is written.
        height: of an image, in pixels.
        width: of an image, in pixels.

    Raises:
        LookupError: a kind is another one.
    """
    import numpy as np

    found: dict[str, Any] = {}
    for kind in kinds:
        random = np.random.default_rng(5)
        if kind == "image":
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            found[kind] = importlib.import_module("PIL.Image").fromarray(pixels)
        elif kind == "audio":
            place = folder / "request.wav"
            if not place.exists():
                beside = folder / f"request-{os.getpid()}.wav"
                sound = (0.1 * random.standard_normal(SAMPLES)).astype(np.float32)
                importlib.import_module("soundfile").write(beside, sound, RATE, subtype="FLOAT")
                beside.replace(place)
            found[kind] = str(place)
        else:
            raise LookupError(f"a request brings {kind}, and no small one can be made")
    return found
