"""A checkpoint with the names of the packaged manifest and small shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from scaffold.checkpoint import read_manifest
from scaffold.files.resources import presets_root

# Sizes of the released checkpoint and the small ones that stand for them; no two are equal by accident.
SMALL = {3584: 96, 18944: 160, 512: 32, 152064: 300, 128: 16, 4096: 64, 1152: 40, 4304: 56, 4900: 9, 588: 12}
SMALL |= {256: 48, 64: 64}
LAYERS = 3
LLM_CONFIG: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}
ROOT_CONFIG: dict[str, Any] = {
    "latent_patch_size": 2,
    "max_latent_size": 32,
    "vae_config": {"z_channels": 16, "downsample": 8},
}


def first_layers() -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the packaged manifest's first layers."""
    shapes = {}
    for name, tensor in read_manifest(presets_root() / "manifests/bagel-7b-mot.ema.json").tensors.items():
        layer = re.search(r"layers\.(\d+)\.", name)
        if layer is None or int(layer[1]) < LAYERS:
            shapes[name] = tuple(tensor.shape)
    return shapes


def small_shapes() -> dict[str, tuple[int, ...]]:
    """Return the same with small shapes."""
    return {name: tuple(SMALL[size] for size in shape) for name, shape in first_layers().items()}


def write_checkpoint(
    folder: Path,
    change: Mapping[str, tuple[int, ...] | None] | None = None,
    llm: Any = LLM_CONFIG,
    root: Any = ROOT_CONFIG,
) -> Path:
    """Write a checkpoint.

    Args:
        folder: made where it is not there.
        change: tensor names to shapes, or to None for a tensor to leave out.
        llm: content of the language model's configuration, None for no such file.
        root: content of ``config.json``, None for no such file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {**small_shapes(), **(change or {})}
    tensors = {key: np.zeros(shape, np.float32) for key, shape in shapes.items() if shape is not None}
    save_file(tensors, str(folder / "ema.safetensors"))
    for file, content in (("llm_config.json", llm), ("config.json", root)):
        if content is not None:
            (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return folder
