"""What the training module must compute, written token by token in float64 and for one sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def velocity(
    state: Mapping[str, Tensor],
    architecture: Mapping[str, Any],
    config: Any,
    latents: Tensor,
    timestep: float,
    text: list[int],
    position_ids: Tensor,
) -> Tensor:
    """Return the velocity of one sample.

    Args:
        latents: ``(N, C)``.
        text: ids of the prompt, empty in the unconditional branch.
        position_ids: ``(N,)`` indices into the position table.
    """
    w = {name: tensor.detach().double() for name, tensor in state.items()}
    suffix = architecture["experts"] or ""
    features = sinusoid(timestep * architecture["timestep_scale"], architecture)
    embedded = linear(w, "time_embedder.mlp.2", silu(linear(w, "time_embedder.mlp.0", features)))
    image = linear(w, architecture["input_projection"], latents.double()) + embedded
    image = image + w["latent_pos_embed.pos_embed"][position_ids]

    tokens: list[Tensor] = []
    kinds: list[str] = []
    for part in architecture["sequence"]:
        if part == "text":
            tokens += [w["embed_tokens.weight"][i] for i in text]
            kinds += ["text"] * len(text)
        elif part == "latents":
            tokens += list(image)
            kinds += ["latents"] * len(image)
        else:
            tokens.append(w["embed_tokens.weight"][getattr(config, f"{part}_id")])
            kinds.append(part)
    shared = architecture["image_position"] == "text_length"
    positions = [i if kind == "text" or not shared else len(text) for i, kind in enumerate(kinds)]
    causal = architecture["text_attention"] == "causal"
    allowed = torch.tensor(
        [
            [kind != "text" or (other == "text" and (j <= i or not causal)) for j, other in enumerate(kinds)]
            for i, kind in enumerate(kinds)
        ]
    )
    ends = [suffix if kind == "latents" else "" for kind in kinds]
    hidden = torch.stack(tokens)
    for index in range(config.num_hidden_layers):
        hidden = layer(w, f"layers.{index}.", hidden, ends, positions, allowed, architecture, config)
    normed = torch.stack([norm(w, f"norm{end}", h, config) for h, end in zip(hidden, ends, strict=True)])
    output = linear(w, architecture["output_projection"], normed)
    return output[[i for i, kind in enumerate(kinds) if kind == "latents"]]


def layer(w, at, hidden, ends, positions, allowed, architecture, config):
    """One layer over all tokens of a sample."""
    head_dim = config.hidden_size // config.num_attention_heads
    groups = config.num_attention_heads // config.num_key_value_heads
    q, k, v = [], [], []
    for h, end, position in zip(hidden, ends, positions, strict=True):
        x = norm(w, f"{at}input_layernorm{end}", h, config)
        for name, into in (("q", q), ("k", k), ("v", v)):
            heads = linear(w, f"{at}self_attn.{name}_proj{end}", x).view(-1, head_dim)
            if name != "v":
                if architecture["qk_norm"]:
                    heads = torch.stack([norm(w, f"{at}self_attn.{name}_norm{end}", one, config) for one in heads])
                heads = rotate(heads, position, head_dim, config.rope_theta)
            into.append(heads if name == "q" else heads.repeat_interleave(groups, dim=0))
    q, k, v = torch.stack(q), torch.stack(k), torch.stack(v)
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(head_dim)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    mixed = torch.einsum("hij,jhd->ihd", weights, v).flatten(1)
    out = []
    for h, m, end in zip(hidden, mixed, ends, strict=True):
        h = h + linear(w, f"{at}self_attn.o_proj{end}", m)
        x = norm(w, f"{at}post_attention_layernorm{end}", h, config)
        up = linear(w, f"{at}mlp{end}.up_proj", x)
        if architecture["mlp"] == "swiglu":
            up = silu(linear(w, f"{at}mlp{end}.gate_proj", x)) * up
        else:
            up = 0.5 * up * (1 + torch.erf(up / math.sqrt(2)))
        out.append(h + linear(w, f"{at}mlp{end}.down_proj", up))
    return torch.stack(out)


def linear(w, name, x):
    """Affine map; without a bias where the state has none."""
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def norm(w, name, x, config):
    """Root-mean-square norm of one vector."""
    return x / torch.sqrt((x * x).mean() + config.rms_norm_eps) * w[f"{name}.weight"]


def silu(x):
    """``x * sigmoid(x)``."""
    return x / (1 + torch.exp(-x))


def rotate(heads, position, head_dim, theta):
    """Rotary embedding, channel i paired with channel i + head_dim / 2."""
    half = head_dim // 2
    out = heads.clone()
    for i in range(half):
        angle = position * theta ** (-2 * i / head_dim)
        a, b = heads[:, i], heads[:, i + half]
        out[:, i] = a * math.cos(angle) - b * math.sin(angle)
        out[:, i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def sinusoid(t, architecture):
    """Cosines and sines, in the order of the architecture."""
    half = architecture["timestep_frequencies"] // 2
    angles = [t * architecture["timestep_max_period"] ** (-i / half) for i in range(half)]
    parts = [getattr(math, function)(a) for function in architecture["timestep_order"] for a in angles]
    return torch.tensor(parts, dtype=torch.float64)
