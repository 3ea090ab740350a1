"""Recognise the decoder in a checkpoint's names and shapes, and list the parameters its training module will have.

Nothing here reads source or weights: the blocks that ``templates/blocks`` offers leave traces in names and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import RefusedError

Shape = tuple[int, ...]

_QUERY = "layers.0.self_attn.q_proj.weight"


def decoder_prefix(headers: CheckpointHeaders) -> str:
    """Return the prefix under which a decoder with token embedding and numbered layers stands.

    Raises:
        RefusedError: there is none, or more than one.
    """
    prefixes = [name.removesuffix(_QUERY) for name in headers.tensors if name.endswith(_QUERY)]
    found = [prefix for prefix in prefixes if f"{prefix}embed_tokens.weight" in headers.tensors]
    if len(found) != 1:
        seen = ", ".join(repr(prefix) for prefix in found) or "none"
        raise RefusedError(
            f"{headers.source}: the decoder's layers must stand under one prefix as *{_QUERY} beside "
            f"embed_tokens.weight, found {seen}",
            hint="only architectures that templates/blocks can compose are rendered",
        )
    return found[0]


def recognise(headers: CheckpointHeaders) -> dict[str, Any]:
    """Return sizes and kinds of blocks of the decoder: the part of ``[architecture]`` that headers tell.

    Raises:
        RefusedError: no decoder, or one whose blocks are none of ``templates/blocks``.
    """
    prefix = decoder_prefix(headers)
    shapes = {name.removeprefix(prefix): t.shape for name, t in headers.tensors.items() if name.startswith(prefix)}
    layer = "layers.0."
    names = {name.removeprefix(layer) for name in shapes if name.startswith(layer)}
    experts = _expert_suffix(names)
    hidden = shapes["embed_tokens.weight"][1]
    q_size, kv_size = shapes[_QUERY][0], shapes[f"{layer}self_attn.k_proj.weight"][0]
    if "mlp.gate_proj.weight" in names:
        mlp, inner = "swiglu", shapes[f"{layer}mlp.gate_proj.weight"][0]
    elif "mlp.up_proj.weight" in names:
        mlp, inner = "gelu", shapes[f"{layer}mlp.up_proj.weight"][0]
    else:
        raise RefusedError(f"{headers.source}: no feed-forward block of templates/blocks has the names of {layer}mlp")
    qk_norm = "self_attn.q_norm.weight" in names
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1 + max(int(n.split(".")[1]) for n in shapes if n.startswith("layers.")),
        "head_dim": shapes[f"{layer}self_attn.q_norm.weight"][0] if qk_norm else None,
        "q_size": q_size,
        "kv_size": kv_size,
        "vocab_size": shapes["embed_tokens.weight"][0],
        "qk_norm": qk_norm,
        "qkv_bias": "self_attn.q_proj.bias" in names,
        "output_bias": "self_attn.o_proj.bias" in names,
        "mlp": mlp,
        "mlp_bias": "mlp.up_proj.bias" in names,
        "experts": experts,
    }


def _expert_suffix(names: set[str]) -> str | None:
    """Return the suffix that turns every module of a layer into its twin, such as a second set of projections."""
    twins = {
        name.removeprefix("self_attn.q_proj").removesuffix(".weight")
        for name in names
        if name.startswith("self_attn.q_proj") and name.endswith(".weight")
    } - {""}
    return twins.pop() if len(twins) == 1 else None


def latent_modules(
    headers: CheckpointHeaders, hidden: int, token_size: int, hints: Mapping[str, str | None]
) -> dict[str, Any]:
    """Find the modules around the decoder: latent projections and timestep embedder.

    Args:
        hidden: width of the decoder.
        token_size: channels of one latent token.
        hints: names to take where shapes alone leave a choice, by key of the result.

    Returns:
        Names by role, None where nothing fits or nothing decides; and the number of timestep features.
    """
    tensors = headers.tensors
    tops = [name.removesuffix(".weight") for name in tensors if name.count(".") == 1 and name.endswith(".weight")]
    timed = [name.removesuffix(".mlp.0.weight") for name in tensors if name.endswith(".mlp.0.weight")]
    fitting = {
        "input_projection": [name for name in tops if tensors[f"{name}.weight"].shape == (hidden, token_size)],
        "output_projection": [name for name in tops if tensors[f"{name}.weight"].shape == (token_size, hidden)],
        "time_embedder": [name for name in timed if tensors[f"{name}.mlp.0.weight"].shape[0] == hidden],
    }
    found: dict[str, Any] = {}
    for role, names in fitting.items():
        hinted = [name for name in names if name == hints.get(role)]
        chosen = hinted or names
        found[role] = chosen[0] if len(chosen) == 1 else None
    embedder = found["time_embedder"]
    found["timestep_frequencies"] = tensors[f"{embedder}.mlp.0.weight"].shape[1] if embedder else None
    return found


def table_side(shape: Shape) -> int | None:
    """Return the side of a square position table of ``(side * side, hidden)``; None when it is not square."""
    side = math.isqrt(shape[0])
    return side if side * side == shape[0] else None


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, Shape]:
    """Return name and shape of every parameter of the training module that the templates render."""
    a = architecture
    hidden, inner, token = a["hidden_size"], a["intermediate_size"], latents["patch"] ** 2 * latents["channels"]
    head_dim = a["hidden_size"] // a["num_attention_heads"]
    q_size, kv_size = a["num_attention_heads"] * head_dim, a["num_key_value_heads"] * head_dim
    suffixes = ["", a["experts"]] if a["experts"] else [""]
    found: dict[str, Shape] = {"embed_tokens.weight": (a["vocab_size"], hidden)}

    def linear(name: str, rows: int, columns: int, bias: bool) -> None:
        found[f"{name}.weight"] = (rows, columns)
        if bias:
            found[f"{name}.bias"] = (rows,)

    for index in range(a["num_hidden_layers"]):
        for suffix in suffixes:
            layer = f"layers.{index}."
            linear(f"{layer}self_attn.q_proj{suffix}", q_size, hidden, a["qkv_bias"])
            linear(f"{layer}self_attn.k_proj{suffix}", kv_size, hidden, a["qkv_bias"])
            linear(f"{layer}self_attn.v_proj{suffix}", kv_size, hidden, a["qkv_bias"])
            linear(f"{layer}self_attn.o_proj{suffix}", hidden, q_size, a["output_bias"])
            if a["qk_norm"]:
                found[f"{layer}self_attn.q_norm{suffix}.weight"] = (head_dim,)
                found[f"{layer}self_attn.k_norm{suffix}.weight"] = (head_dim,)
            if a["mlp"] == "swiglu":
                linear(f"{layer}mlp{suffix}.gate_proj", inner, hidden, a["mlp_bias"])
            linear(f"{layer}mlp{suffix}.up_proj", inner, hidden, a["mlp_bias"])
            linear(f"{layer}mlp{suffix}.down_proj", hidden, inner, a["mlp_bias"])
            found[f"{layer}input_layernorm{suffix}.weight"] = (hidden,)
            found[f"{layer}post_attention_layernorm{suffix}.weight"] = (hidden,)
    for suffix in suffixes:
        found[f"norm{suffix}.weight"] = (hidden,)
    linear(f"{a['time_embedder']}.mlp.0", hidden, a["timestep_frequencies"], True)
    linear(f"{a['time_embedder']}.mlp.2", hidden, hidden, True)
    linear(a["input_projection"], hidden, token, True)
    linear(a["output_projection"], token, hidden, True)
    found[f"{a['position_embedding']}.pos_embed"] = (a["position_table_side"] ** 2, hidden)
    return found
