"""A small checkpoint of the layout of a model with two sets of decoder weights and latents of an autoencoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY, SIDE, CHANNELS = 64, 112, 2, 4, 2, 320, 8, 48
CONFIG: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [4, 2, 2]},
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the tensors' names and shapes."""
    model, head = "language_model.model.", HIDDEN // HEADS
    found: dict[str, tuple[int, ...]] = {
        "language_model.lm_head.weight": (VOCABULARY, HIDDEN),
        f"{model}embed_tokens.weight": (VOCABULARY, HIDDEN),
        "latent_pos_embed.pos_embed": (SIDE**2, HIDDEN),
        "vae2llm.weight": (HIDDEN, CHANNELS),
        "vae2llm.bias": (HIDDEN,),
        "llm2vae.weight": (CHANNELS, HIDDEN),
        "llm2vae.bias": (CHANNELS,),
        "time_embedder.mlp.0.weight": (HIDDEN, 256),
        "time_embedder.mlp.0.bias": (HIDDEN,),
        "time_embedder.mlp.2.weight": (HIDDEN, HIDDEN),
        "time_embedder.mlp.2.bias": (HIDDEN,),
    }
    for gen in ("", "_moe_gen"):
        found[f"{model}norm{gen}.weight"] = (HIDDEN,)
        for index in range(LAYERS):
            layer = f"{model}layers.{index}."
            for name, rows in (("q", HIDDEN), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
                found[f"{layer}self_attn.{name}_proj{gen}.weight"] = (rows, HIDDEN)
                found[f"{layer}self_attn.{name}_proj{gen}.bias"] = (rows,)
            found[f"{layer}self_attn.o_proj{gen}.weight"] = (HIDDEN, HIDDEN)
            for name in ("q_norm", "k_norm"):
                found[f"{layer}self_attn.{name}{gen}.weight"] = (head,)
            for name, rows, columns in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
                found[f"{layer}mlp{gen}.{name}_proj.weight"] = (rows, columns)
            for name in ("input_layernorm", "post_attention_layernorm"):
                found[f"{layer}{name}{gen}.weight"] = (HIDDEN,)
    return found


def write_checkpoint(folder: Path, change: Mapping[str, tuple[int, ...] | None] | None = None) -> Path:
    """Write weights and the language model's configuration; ``change`` gives tensors other shapes, None takes one out.

    There is no ``config.json``, as beside the released weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {**shapes(), **(change or {})}
    tensors = {name: np.zeros(shape, dtype=np.float32) for name, shape in wanted.items() if shape is not None}
    save_file(tensors, folder / "model.safetensors")
    (folder / "llm_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder
