"""A small checkpoint of the layout that a pixel-space pipeline with two sets of decoder weights loads."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 64, 112, 2, 4, 2, 16, 300
VISION, SIDE, MERGE, HEAD = 24, 4, 2, 4096
CONFIG: dict[str, Any] = {
    "model_type": "neo_chat",
    "downsample_ratio": 1 / MERGE,
    "noise_scale": 1.0,
    "noise_scale_mode": "resolution",
    "noise_scale_base_image_seq_len": 64,
    "noise_scale_max_value": 8.0,
    "add_noise_scale_embedding": True,
    "llm_config": {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000.0,
        "rope_theta_hw": 20000.0,
        "attention_bias": False,
    },
    "vision_config": {"patch_size": SIDE, "hidden_size": VISION, "llm_hidden_size": [HIDDEN], "num_channels": 3},
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the tensors' names and shapes."""
    found: dict[str, tuple[int, ...]] = {"language_model.lm_head.weight": (VOCABULARY, HIDDEN)}
    model = "language_model.model."
    found[f"{model}embed_tokens.weight"] = (VOCABULARY, HIDDEN)
    for gen in ("", "_mot_gen"):
        found[f"{model}norm{gen}.weight"] = (HIDDEN,)
        for index in range(LAYERS):
            layer = f"{model}layers.{index}."
            for name, rows, columns in (
                ("q_proj", HEADS * HEAD_DIM, HIDDEN),
                ("k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
                ("v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
                ("o_proj", HIDDEN, HEADS * HEAD_DIM),
            ):
                found[f"{layer}self_attn.{name}{gen}.weight"] = (rows, columns)
            for name in ("q_norm", "k_norm", "q_norm_hw", "k_norm_hw"):
                found[f"{layer}self_attn.{name}{gen}.weight"] = (HEAD_DIM // 2,)
            for name, rows, columns in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
                found[f"{layer}mlp{gen}.{name}_proj.weight"] = (rows, columns)
            for name in ("input_layernorm", "post_attention_layernorm"):
                found[f"{layer}{name}{gen}.weight"] = (HIDDEN,)
    for tower in ("vision_model", "fm_modules.vision_model_mot_gen"):
        for name, shape in (
            ("patch_embedding", (VISION, 3, SIDE, SIDE)),
            ("dense_embedding", (HIDDEN, VISION, MERGE, MERGE)),
        ):
            found[f"{tower}.embeddings.{name}.weight"] = shape
            found[f"{tower}.embeddings.{name}.bias"] = shape[:1]
    for name, rows, columns in (
        ("timestep_embedder.mlp.0", HIDDEN, 256),
        ("timestep_embedder.mlp.2", HIDDEN, HIDDEN),
        ("noise_scale_embedder.mlp.0", HIDDEN, 256),
        ("noise_scale_embedder.mlp.2", HIDDEN, HIDDEN),
        ("fm_head.0", HEAD, HIDDEN),
        ("fm_head.2", 3 * (SIDE * MERGE) ** 2, HEAD),
    ):
        found[f"fm_modules.{name}.weight"] = (rows, columns)
        found[f"fm_modules.{name}.bias"] = (rows,)
    return found


# Noise of one size whatever the image, and nothing that tells the model of it.
PLAIN_TENSORS = {name: None for name in shapes() if "noise_scale_embedder" in name}
PLAIN_CONFIG = {"noise_scale_mode": "none", "add_noise_scale_embedding": False}


def write_checkpoint(
    folder: Path, change: Mapping[str, tuple[int, ...] | None] | None = None, config: Mapping[str, Any] | None = None
) -> Path:
    """Write zeros of these shapes and the configuration.

    Args:
        folder: made where it is not there.
        change: tensor names to shapes, or to None for a tensor to leave out.
        config: dotted keys of ``config.json`` to other values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {**shapes(), **(change or {})}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in wanted.items() if shape is not None}
    save_file(tensors, str(folder / "model.safetensors"))
    content = copy.deepcopy(CONFIG)
    for path, value in (config or {}).items():
        *parents, last = path.split(".")
        place = content
        for name in parents:
            place = place[name]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
