"""A checkpoint of the invented model as its author would release it: configuration, headers, files with holes."""

from __future__ import annotations

import json
from pathlib import Path

from scaffold.checkpoint import CheckpointHeaders, TensorHeader
from scaffold.checkpoint.headers import CheckpointFile
from scaffold.verify.loading.run import write_headers

CONFIG = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tile_channels": 12,
    "shift": 3.0,
}
FILE = "model.safetensors"


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors."""
    wide, narrow, middle, tile = 1024, 256, 2816, 12
    found: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (32000, wide), "norm.weight": (wide,)}
    linears = {"enter": (wide, tile), "level.0": (wide, 256), "level.2": (wide, wide), "leave": (tile, wide)}
    linears |= {f"layers.{i}.modulation": (2 * wide, wide) for i in range(24)}
    for name, shape in linears.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for side in (f"layers.{i}.{name}" for i in range(24) for name in ("words", "tiles")):
        projected = {"q_proj": wide, "k_proj": narrow, "v_proj": narrow, "o_proj": wide, "up": middle}
        found |= {f"{side}.{name}.weight": (rows, wide) for name, rows in projected.items()}
        found |= {f"{side}.down.weight": (wide, middle), f"{side}.norm.weight": (wide,)}
        found |= {f"{side}.mlp_norm.weight": (wide,)}
    painter = {"painter.paint.weight": (192, tile), "painter.paint.bias": (192,)}
    return {**{f"transformer.{name}": shape for name, shape in found.items()}, **painter}


def write_checkpoint(folder: Path) -> Path:
    """Write it; the files take no space."""
    entries = tuple(TensorHeader(name, "BF16", shape, FILE) for name, shape in shapes().items())
    size = sum(entry.nbytes for entry in entries)
    file = CheckpointFile(FILE, size, len(entries))
    write_headers(CheckpointHeaders("kiln", (file,), entries, {"config.json": CONFIG}), folder)
    assert json.loads((folder / "config.json").read_text()) == CONFIG
    return folder
