"""Recognise the decoder in a checkpoint's names and shapes, and list the parameters its training module will have.

Nothing here reads source or weights: the blocks that ``templates/blocks`` offers leave traces in names and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import ScaffoldError
from scaffold.spec.blocks import kinds

Shape = tuple[int, ...]

_QUERY = "layers.0.self_attn.q_proj.weight"
_DIGITS = 6  # no decoder has a million layers; longer numbers are somebody's joke


def shape_of(headers: CheckpointHeaders, name: str, rank: int) -> Shape:
    """Return the shape of a tensor that the pipeline loads.

    Raises:
        ScaffoldError: the checkpoint lacks it, or it has another rank or an empty side.
    """
    tensor = headers.tensors.get(name)
    if tensor is None:
        raise ScaffoldError(
            f"{headers.source} lacks {name!r}, which the pipeline loads", hint="is it the right checkpoint?"
        )
    if len(tensor.shape) != rank or not all(tensor.shape):
        raise ScaffoldError(f"{headers.source}: {name!r} has shape {list(tensor.shape)}, expected {rank} dimensions")
    return tensor.shape


def decoder_prefix(headers: CheckpointHeaders, layers: str | None = None) -> str:
    """Return the prefix under which a decoder with token embedding and numbered layers stands.

    Args:
        layers: where the source keeps the layers, such as ``language_model.model.layers``.

    Raises:
        ScaffoldError: there is none, or more than one.
    """
    if layers is not None and any(name.startswith(f"{layers}.") for name in headers.tensors):
        return layers.removesuffix("layers")
    prefixes = [name.removesuffix(_QUERY) for name in headers.tensors if name.endswith(_QUERY)]
    found = [prefix for prefix in prefixes if f"{prefix}embed_tokens.weight" in headers.tensors]
    if len(found) != 1:
        seen = ", ".join(repr(prefix) for prefix in found) or "none"
        raise ScaffoldError(
            f"{headers.source}: the decoder must stand under one prefix as *{_QUERY} beside *embed_tokens.weight, "
            f"found {seen}",
            hint="it lacks what the pipeline loads, or is not a decoder that templates/blocks can compose",
        )
    return found[0]


def recognise(headers: CheckpointHeaders, layers: str | None = None) -> dict[str, Any]:
    """Return sizes and kinds of blocks of the decoder: the part of ``[architecture]`` that headers tell.

    Raises:
        ScaffoldError: no decoder, one whose blocks are none of ``templates/blocks``, or tensors of other ranks.
    """
    prefix = decoder_prefix(headers, layers)
    layer = f"{prefix}layers.0."
    names = {name.removeprefix(layer) for name in headers.tensors if name.startswith(layer)}
    vocabulary, hidden = shape_of(headers, f"{prefix}embed_tokens.weight", 2)
    query = shape_of(headers, f"{layer}self_attn.q_proj.weight", 2)
    key = shape_of(headers, f"{layer}self_attn.k_proj.weight", 2)
    experts = _expert_suffix(names)
    norms = norm_parts(names, experts)
    gated = "mlp.gate_proj.weight" in names
    inner = shape_of(headers, f"{layer}mlp.{'gate_proj' if gated else 'up_proj'}.weight", 2)[0]
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": _layer_count(headers, prefix),
        "head_dim": len(norms) * shape_of(headers, f"{layer}self_attn.q_norm.weight", 1)[0] if norms else None,
        "q_size": query[0],
        "kv_size": key[0],
        "vocab_size": vocabulary,
        "qk_norm": bool(norms),
        "qkv_bias": "self_attn.q_proj.bias" in names,
        "output_bias": "self_attn.o_proj.bias" in names,
        "mlp": "swiglu" if gated else "gelu",
        "mlp_bias": "mlp.up_proj.bias" in names,
        "experts": experts,
        **({"norm_parts": norms} if len(norms) > 1 else {}),
    }


def norm_parts(names: set[str], experts: str | None) -> list[str]:
    """Return what follows ``q_norm`` in the names of the norms that the parts of a head have; one part has "" alone."""
    found = {n.removeprefix("self_attn.q_norm").removesuffix(".weight") for n in names if "self_attn.q_norm" in n}
    return sorted({part.removesuffix(experts or "") for part in found})


def _layer_count(headers: CheckpointHeaders, prefix: str) -> int:
    """Return n where the layers present are exactly 0…n-1."""
    start = f"{prefix}layers."
    indices = {name.removeprefix(start).partition(".")[0] for name in headers.tensors if name.startswith(start)}
    strange = sorted(i for i in indices if not (i.isascii() and i.isdigit() and len(i) <= _DIGITS and i == str(int(i))))
    if strange:
        raise ScaffoldError(f"{headers.source}: {start}{strange[0][:40]} is not a layer number")
    missing = sorted(set(range(len(indices))) - {int(i) for i in indices})
    if missing:
        raise ScaffoldError(
            f"{headers.source} lacks layer {missing[0]} of {start}*", hint="the layers must be 0 to n-1"
        )
    return len(indices)


def _expert_suffix(names: set[str]) -> str | None:
    """Return the suffix that turns every module of a layer into its twin, such as a second set of projections."""
    twins = {
        name.removeprefix("self_attn.q_proj").removesuffix(".weight")
        for name in names
        if name.startswith("self_attn.q_proj") and name.endswith(".weight")
    } - {""}
    return twins.pop() if len(twins) == 1 else None


def token_size(latents: Mapping[str, Any]) -> int:
    """Return the channels of one latent token."""
    size: int = latents["patch"] ** 2 * latents["channels"]
    return size


def projection(headers: CheckpointHeaders, shape: Shape, hint: str | None) -> str | None:
    """Return the name of the one linear layer at the top of the checkpoint that has a shape; None where none decides.

    Args:
        headers: the checkpoint.
        shape: of the weight.
        hint: a name that decides where shapes leave a choice, and must be there.

    Raises:
        ScaffoldError: the hinted layer is missing, or its shape contradicts the sizes.
    """
    tensors = headers.tensors
    tops = [name.removesuffix(".weight") for name in tensors if name.count(".") == 1 and name.endswith(".weight")]
    fitting = [name for name in tops if tensors[f"{name}.weight"].shape == shape]
    if hint is None:
        return fitting[0] if len(fitting) == 1 else None
    if hint not in fitting:
        seen = shape_of(headers, f"{hint}.weight", 2)
        raise ScaffoldError(
            f"{headers.source}: {hint + '.weight'!r} has shape {list(seen)}, expected {list(shape)} from hidden "
            "size, patch side and channels"
        )
    return hint


def time_embedder(headers: CheckpointHeaders, path: str | None) -> dict[str, Any]:
    """Return name and number of features of the timestep embedder, None where none decides.

    Args:
        headers: the checkpoint.
        path: where the source keeps it; it decides where there are several, and must be there.

    Raises:
        ScaffoldError: the checkpoint lacks it.
    """
    timed = [name.removesuffix(".mlp.0.weight") for name in headers.tensors if name.endswith(".mlp.0.weight")]
    if path is not None:
        # The checkpoint may keep the denoiser below a name of its own.
        timed = [name for name in timed if f".{name}".endswith(f".{path}")] or [path]
    found = timed[0] if len(timed) == 1 else None
    return {
        "time_embedder": found.rpartition(".")[2] if found else None,
        "timestep_frequencies": shape_of(headers, f"{found}.mlp.0.weight", 2)[1] if found else None,
    }


def table_side(headers: CheckpointHeaders, name: str) -> int:
    """Return the side of the square position table ``(side * side, hidden)``.

    Raises:
        ScaffoldError: it is missing or not square.
    """
    rows = shape_of(headers, name, 2)[0]
    side = math.isqrt(rows)
    if side * side != rows:
        raise ScaffoldError(f"{headers.source}: {name!r} has {rows} rows, which is not a square grid")
    return side


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, Shape]:
    """Return name and shape of every parameter of the training module that the templates render."""
    a = architecture
    hidden, inner, head_dim = a["hidden_size"], a["intermediate_size"], a["head_dim"]
    q_size, kv_size = a["num_attention_heads"] * head_dim, a["num_key_value_heads"] * head_dim
    suffixes = ["", a["experts"]] if a.get("experts") else [""]
    norms = a.get("norm_parts") or [""]
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
            for part in norms if a["qk_norm"] else ():
                found[f"{layer}self_attn.q_norm{part}{suffix}.weight"] = (head_dim // len(norms),)
                found[f"{layer}self_attn.k_norm{part}{suffix}.weight"] = (head_dim // len(norms),)
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
    if (a.get("noise_rule") or {}).get("embedder"):
        linear(f"{a['noise_rule']['embedder']}.mlp.0", hidden, a["timestep_frequencies"], True)
        linear(f"{a['noise_rule']['embedder']}.mlp.2", hidden, hidden, True)
    for role in ("latent_input", "latent_output"):
        found |= kinds(role)[a.get(role) or "linear"].parameters(architecture, latents)
    if a.get("position_embedding"):
        found[f"{a['position_embedding']}.pos_embed"] = (a["position_table_side"] ** 2, hidden)
    return found
