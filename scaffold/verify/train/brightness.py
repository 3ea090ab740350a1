"""A reward that needs no model and can rise and fall, named to the trainer by this file's path.

It keeps what validations make: the trainer writes images, as JPEG, and no films.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def brightness(
    data_source: Any = None, solution_image: Any = None, ground_truth: Any = None, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Mean of the pixels, ``uint8`` of any shape, in [0, 1]."""
    import torch

    media = torch.as_tensor(solution_image)
    row = dict(extra_info or {})
    if row.get("split") == "test" and "index" in row:
        _keep(media, int(row["index"]))
    return {"score": float(media.float().mean() / 255)}


def _keep(media: Any, row: int) -> None:
    import numpy as np

    folder = os.environ.get("OMNI_SCAFFOLD_TRAIN_VALIDATED")
    if folder is not None:
        place = Path(folder)
        place.mkdir(exist_ok=True)
        np.save(place / f"{row}.{time.monotonic_ns():020d}.npy", media.cpu().numpy())
