"""Writes weight files, good and bad, with sparse data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

Tensors = dict[str, tuple[str, list[int]]]
WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U8": 1, "BOOL": 1}


def header_of(tensors: Tensors) -> tuple[dict[str, object], int]:
    """Return a valid header for the tensors, one after the other, and the bytes of their data."""
    header: dict[str, object] = {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + WIDTH[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    return header, position


def put(path: Path, header: object, data_bytes: int, *, length: int | None = None) -> Path:
    """Write a header (an object, or raw bytes) and a sparse body."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write((len(raw) if length is None else length).to_bytes(8, "little") + raw)
        stream.truncate(8 + len(raw) + data_bytes)
    return path


@pytest.fixture
def weights() -> Callable[..., Path]:
    """Return a function that writes a valid weight file: ``weights(path, {name: (dtype, shape)})``."""

    def write(path: Path, tensors: Tensors) -> Path:
        return put(path, *header_of(tensors))

    return write


@pytest.fixture
def raw_weights() -> Callable[..., Path]:
    """Return a function that writes any header: ``raw_weights(path, header, data_bytes, length=…)``."""
    return put


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Return a folder with two shards, an index and a config."""
    folder = tmp_path / "sharded"
    shards = {
        "model-00001-of-00002.safetensors": {"layers.0.w": ("BF16", [4, 2]), "layers.1.w": ("BF16", [4, 2])},
        "model-00002-of-00002.safetensors": {"norm.w": ("F32", [4])},
    }
    for file, tensors in shards.items():
        put(folder / file, *header_of(tensors))
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    index = {"metadata": {"total_size": 48}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"hidden_size": 4}')
    return folder


@pytest.fixture
def fuzz_seconds() -> float:
    """Return how long a fuzz test may run; ``OMNI_SCAFFOLD_FUZZ_SECONDS`` makes it longer."""
    return float(os.environ.get("OMNI_SCAFFOLD_FUZZ_SECONDS", "3"))
