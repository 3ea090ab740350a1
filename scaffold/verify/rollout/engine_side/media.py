"""Images and sounds that a request brings, small and always the same."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

SAMPLES = 4_000  # a quarter of a second as speech models hear it: one clip of a few frames


def media(kinds: Iterable[str], height: int, width: int) -> dict[str, Any]:
    """What a request holds under ``multi_modal_data``.

    Args:
        kinds: ``image``, ``audio``.
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
            found[kind] = (0.1 * random.standard_normal(SAMPLES)).astype(np.float32)
        else:
            raise LookupError(f"a request brings {kind}, and no small one can be made")
    return found
