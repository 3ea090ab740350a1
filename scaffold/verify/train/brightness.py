"""A reward that needs no model and can rise and fall, named to the trainer by this file's path."""

from __future__ import annotations

from typing import Any


def brightness(
    data_source: Any = None, solution_image: Any = None, ground_truth: Any = None, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Mean of the pixels, ``uint8`` of any shape, in [0, 1]."""
    import torch

    return {"score": float(torch.as_tensor(solution_image).float().mean() / 255)}
