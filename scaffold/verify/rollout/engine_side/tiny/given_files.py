"""Files that a pipeline reads by itself, as ``[verify.files]`` of ``scaffold.toml`` describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

WEIGHTS = ".safetensors"


def write_files(folder: Path, given: Mapping[str, Mapping[str, Any]], dtype: torch.dtype) -> None:
    """Write each file below a checkpoint's folder; one that is there stays.

    Args:
        folder: the checkpoint.
        given: by path; the content of a JSON file, or the shape of each tensor of a file of weights.
        dtype: of the weights.

    Raises:
        ValueError: a path leads out of the folder.
    """
    from safetensors.torch import save_file

    for name, content in given.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} of [verify.files] lies outside of the checkpoint")
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(WEIGHTS):
            save_file({key: _weight(shape, seed).to(dtype) for seed, (key, shape) in enumerate(content.items())}, path)
        else:
            path.write_text(json.dumps(content), encoding="utf-8")


def _weight(shape: list[int], seed: int) -> torch.Tensor:
    """Seeded values that matter; a vector stays near one, as the scale of a norm does."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return 1 + 0.1 * noise if len(shape) < 2 else noise * shape[-1] ** -0.5
