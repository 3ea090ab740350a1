# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""BagelForTraining: the image-generation path of BAGEL-7B-MoT as a standalone module.

It computes what ``BagelPipeline`` of vllm-omni computes, without its key-value cache:
one sample is ``[text, start_of_image, latents, end_of_image]``; text attends causally to text, everything after
it attends to everything.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model_state_dict
from peft.tuners import lora
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

# Checkpoint prefix -> training prefix. The table loads the checkpoint, names the weights that are saved, and names
# those that reach the rollout engine. What does not end in a dot is a whole name. The longest that fits decides.
KEY_MAP: tuple[tuple[str, str], ...] = (
    ("latent_pos_embed.", "latent_pos_embed."),
    ("time_embedder.", "time_embedder."),
    ("llm2vae.", "llm2vae."),
    ("vae2llm.", "vae2llm."),
    ("language_model.model.", ""),
)

# Checkpoint prefix -> why training has no use for it. A key that neither table knows stops the load.
IGNORED_KEYS: tuple[tuple[str, str], ...] = (
    ("connector.", "image understanding, not used for image generation"),
    ("language_model.lm_head.", "predicts text, not used for image generation"),
    ("vit_model.", "image understanding, not used for image generation"),
    ("vit_pos_embed.", "image understanding, not used for image generation"),
)

CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)
SAVED_FILE = "ema.safetensors"


def to_training_key(name: str) -> str | None:
    """Name of a checkpoint tensor in BagelForTraining, None where it is ignored on purpose.

    Raises:
        KeyError: neither table knows the name.
    """
    targets: dict[str, str | None] = {**dict(KEY_MAP), **{source: None for source, _ in IGNORED_KEYS}}
    fitting = [source for source in targets if name == source or (source[-1:] in ("", ".") and name.startswith(source))]
    if not fitting:
        raise KeyError(f"checkpoint tensor {name!r} is in neither KEY_MAP nor IGNORED_KEYS of {__name__}")
    source = max(fitting, key=len)
    target = targets[source]
    return None if target is None else target + name[len(source) :]


def to_checkpoint_key(name: str) -> str:
    """Inverse of :func:`to_training_key` for a parameter name of BagelForTraining.

    Raises:
        KeyError: no rule leads to the name.
    """
    for source, target in sorted(KEY_MAP, key=lambda rule: -len(rule[1])):
        if name.startswith(target):
            return source + name[len(target) :]
    raise KeyError(f"no rule of KEY_MAP leads to parameter {name!r}")


def checkpoint_tensors(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Give weights of BagelForTraining the checkpoint's names."""
    for name, tensor in weights:
        yield to_checkpoint_key(name), tensor


@dataclass
class BagelTrainingConfig:
    """Sizes of the model; the defaults are those of BAGEL-7B-MoT."""

    hidden_size: int = 3584
    intermediate_size: int = 18944
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int = 4
    vocab_size: int = 152064
    rms_norm_eps: float = 1e-06
    rope_theta: float = 1000000.0
    latent_patch_size: int = 2
    max_latent_size: int = 64
    latent_channel: int = 16
    vae_downsample: int = 8
    start_of_image_id: int = 151652  # <|vision_start|>
    end_of_image_id: int = 151653  # <|vision_end|>

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def patch_latent_dim(self) -> int:
        """Channels of one latent token."""
        return self.latent_patch_size**2 * self.latent_channel

    @property
    def pixels_per_token(self) -> int:
        """Side, in pixels, of the image square that one latent token stands for."""
        return self.latent_patch_size * self.vae_downsample

    def save_pretrained(self, save_directory: str) -> None:
        """Write ``config.json``; :meth:`from_model_path` reads it back to the same values."""
        os.makedirs(save_directory, exist_ok=True)
        with open(os.path.join(save_directory, "config.json"), "w", encoding="utf-8") as file:
            json.dump({_CONFIG_MARK: type(self).__name__, **asdict(self)}, file, indent=2, sort_keys=True)

    @classmethod
    def from_model_path(cls, model_path: str) -> BagelTrainingConfig:
        """Read the sizes from a released checkpoint's configuration, or from what :meth:`save_pretrained` wrote.

        Raises:
            FileNotFoundError: there is no ``config.json``.
            ValueError: a size that has no default upstream is missing.
        """
        root = _read_json(model_path, "config.json")
        if root.get(_CONFIG_MARK) == cls.__name__:
            return cls(**{field.name: root[field.name] for field in fields(cls)})
        text = _text_config(model_path, root)
        return cls(
            hidden_size=_required(text, "hidden_size", "llm_config.json"),
            intermediate_size=_required(text, "intermediate_size", "llm_config.json"),
            num_hidden_layers=_required(text, "num_hidden_layers", "llm_config.json"),
            num_attention_heads=_required(text, "num_attention_heads", "llm_config.json"),
            num_key_value_heads=_required(text, "num_key_value_heads", "llm_config.json"),
            vocab_size=_required(text, "vocab_size", "llm_config.json"),
            rms_norm_eps=_required(text, "rms_norm_eps", "llm_config.json"),
            rope_theta=_required(text, "rope_theta", "llm_config.json"),
            latent_patch_size=_lookup(root, "latent_patch_size", 2),
            max_latent_size=_lookup(root, "max_latent_size", 32),
            latent_channel=_lookup(root, "vae_config.z_channels", 16),
            vae_downsample=_lookup(root, "vae_config.downsample", 8),
            start_of_image_id=_token_id(
                model_path, "<|vision_start|>", root.get("start_of_image_id", cls.start_of_image_id)
            ),
            end_of_image_id=_token_id(model_path, "<|vision_end|>", root.get("end_of_image_id", cls.end_of_image_id)),
        )


_CONFIG_MARK = "_training_config"


def _read_json(model_path: str, name: str) -> dict:
    """Read one JSON object beside the weights."""
    path = os.path.join(model_path, name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing; BagelForTraining reads its sizes from there")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _text_config(model_path: str, root: dict) -> dict:
    """Sizes of the language model: the file that the rollout reads, else the section of ``config.json``."""
    if os.path.isfile(os.path.join(model_path, "llm_config.json")):
        return _read_json(model_path, "llm_config.json")
    if isinstance(root.get("llm_config"), dict):
        return root["llm_config"]
    raise FileNotFoundError(f"llm_config.json is missing in {model_path}")


def _required(config: dict, key: str, name: str):
    if key not in config:
        raise ValueError(f"{name} has no {key!r}; BagelForTraining cannot guess it")
    return config[key]


def _lookup(config: dict, path: str, default):
    """Follow a dotted path; ``default`` is what the rollout pipeline assumes where the entry is missing."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
        if config is None:
            return default
    return config


def _token_id(model_path: str, text: str, default: int | None) -> int:
    """Id of an added token: what the tokenizer's files say, which is what the rollout uses, else ``default``."""
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json"):
        if not os.path.isfile(os.path.join(model_path, name)):
            continue
        content = _read_json(model_path, name)
        for token in content.get("added_tokens") or ():
            if token.get("content") == text:
                return int(token["id"])
        for token_id, token in (content.get("added_tokens_decoder") or {}).items():
            if token.get("content") == text:
                return int(token_id)
        if name == "added_tokens.json" and text in content:
            return int(content[text])
    if default is None:
        raise ValueError(f"no tokenizer file in {model_path} gives the id of {text!r}")
    return int(default)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, accumulated in float32 whatever the input's dtype.

    Args:
        size: length of the normalised dimension.
        eps: added to the mean square.
    """

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` of shape ``(…, size)``; shape and dtype stay."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rotary_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables of rotary embedding in the half-rotation layout.

    They are computed from the config at every call instead of kept as a buffer: a buffer would be cast to the
    training dtype with the module and lose its low bits.

    Args:
        positions: ``(B, L)`` float32 positions; negative ones are allowed.
        head_dim: channels of one head.
        theta: base of the frequencies.

    Returns:
        ``(cos, sin)``, each ``(B, L, 1, head_dim)`` float32.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float()[:, :, None, None] * theta**-exponents
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def apply_rotary(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate ``x`` of shape ``(B, L, heads, head_dim)`` in float32; returns float32."""
    cos, sin = tables
    x = x.float()
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layout:
    """Where the tokens of a batch stand: rotary tables, padding masks, length of the text.

    A plain class on purpose. Mixed-precision wrappers cast every floating tensor they find in a layer's arguments;
    inside this object the rotary tables keep float32.

    Args:
        text_length: padded length L of the text; 0 in the unconditional branch.
        text_mask: ``(B, L)``, true at real tokens, or None where no text is padded.
        latent_length: number N of latent tokens.
        config: sizes of the model.
        device: where the tables are made.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_length: int,
        config: BagelTrainingConfig,
        device: torch.device,
    ):
        self.text_length = text_length
        self.key_mask: Tensor | None = None
        positions = torch.arange(text_length, dtype=torch.float32, device=device)[None]
        first = torch.full((1, 1), float(text_length), device=device)
        if text_length and text_mask is not None:
            text_mask = text_mask.to(torch.bool)
            first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)
            self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=True)
        # All image tokens of a sample share one rotary position, its own text length. Only differences of positions
        # matter, so the origin is put there: image tokens need no rotation, text stands at negative positions.
        positions = F.pad(positions - first, (0, 2))
        self.rotary = rotary_tables(positions, config.head_dim, config.rope_theta)


def expanded(x: Tensor, heads: int) -> Tensor:
    """Repeat each head of ``(B, L, kv_heads, head_dim)`` for the ``heads`` of the queries that share it."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Grouped-query attention.

    Args:
        q: ``(B, Lq, heads, head_dim)``.
        k, v: ``(B, Lk, kv_heads, head_dim)``.
        key_mask: ``(B, Lk)``, true where a key may be attended to; None attends to all and keeps the fast kernels.
        causal: query i sees keys 0…i.

    Returns:
        ``(B, Lq, heads * head_dim)``.
    """
    if key_mask is not None:  # kernels that take a mask know no groups
        k, v = expanded(k, q.shape[2]), expanded(v, q.shape[2])
        key_mask = key_mask[:, None, None, :]
    grouped = k.shape[2] < q.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)


class BagelAttention(nn.Module):
    """Joint attention over the context and the latents, with projections of their own for each.

    Args:
        config: sizes of the model.
    """

    def __init__(self, config: BagelTrainingConfig):
        super().__init__()
        self.head_dim = config.head_dim
        hidden, q_size = config.hidden_size, config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim

        self.q_proj = nn.Linear(hidden, q_size, bias=True)
        self.k_proj = nn.Linear(hidden, kv_size, bias=True)
        self.v_proj = nn.Linear(hidden, kv_size, bias=True)
        self.o_proj = nn.Linear(q_size, hidden, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

        self.q_proj_moe_gen = nn.Linear(hidden, q_size, bias=True)
        self.k_proj_moe_gen = nn.Linear(hidden, kv_size, bias=True)
        self.v_proj_moe_gen = nn.Linear(hidden, kv_size, bias=True)
        self.o_proj_moe_gen = nn.Linear(q_size, hidden, bias=False)
        self.q_norm_moe_gen = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm_moe_gen = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, context: Tensor, latents: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Attend and project.

        Args:
            context: ``(B, P, hidden)``, text first, then the image markers.
            latents: ``(B, N, hidden)``.
            layout: positions and masks of the sample.

        Returns:
            Updates of context and latents, shaped like them.
        """
        heads = (-1, self.head_dim)
        q_latents = self.q_proj_moe_gen(latents).unflatten(-1, heads)
        k_latents = self.k_proj_moe_gen(latents).unflatten(-1, heads)
        v_latents = self.v_proj_moe_gen(latents).unflatten(-1, heads)
        q_context = self.q_proj(context).unflatten(-1, heads)
        k_context = self.k_proj(context).unflatten(-1, heads)
        v_context = self.v_proj(context).unflatten(-1, heads)
        q_context = apply_rotary(self.q_norm(q_context.float()), layout.rotary).to(v_context.dtype)
        k_context = apply_rotary(self.k_norm(k_context.float()), layout.rotary).to(v_context.dtype)
        q_latents = self.q_norm_moe_gen(q_latents)
        k_latents = self.k_norm_moe_gen(k_latents)

        k = torch.cat((k_context, k_latents), dim=1)
        v = torch.cat((v_context, v_latents), dim=1)
        if layout.key_mask is not None:  # once for both calls that need it
            k, v = expanded(k, q_latents.shape[2]), expanded(v, q_latents.shape[2])
        latents_update = self.o_proj_moe_gen(attend(q_latents, k, v, layout.key_mask))
        updates = []
        text = slice(0, layout.text_length)
        if layout.text_length:
            q_text, k_text, v_text = q_context[:, text], k_context[:, text], v_context[:, text]
            # Padding stands to the right of the text, so causality alone hides it from every real token.
            updates.append(attend(q_text, k_text, v_text, causal=True))
        updates.append(attend(q_context[:, layout.text_length :], k, v, layout.key_mask))
        context_update = self.o_proj(torch.cat(updates, dim=1))
        return context_update, latents_update


Recompute = Callable[..., Tensor]


def call(function: Recompute, *args: Tensor) -> Tensor:
    """``function(*args)``, with everything that its backward pass needs kept in memory."""
    return function(*args)


class BagelMLP(nn.Module):
    """Feed-forward block ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, config: BagelTrainingConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, recompute: Recompute = call) -> Tensor:
        """Map ``(B, L, hidden)`` to ``(B, L, hidden)``."""
        return recompute(self._contract, self.gate_proj(x), self.up_proj(x))

    def _contract(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.down_proj(F.silu(gate) * up)


class BagelMoTLayer(nn.Module):
    """Pre-norm transformer layer over two streams, context and latents.

    The context takes the plain weights, the latents those with ``_moe_gen``.
    The streams stay apart from the first layer to the last, so every projection is one dense product and nothing is
    gathered or scattered.

    Args:
        config: sizes of the model.
    """

    def __init__(self, config: BagelTrainingConfig):
        super().__init__()
        self.self_attn = BagelAttention(config)
        self.mlp = BagelMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp_moe_gen = BagelMLP(config)
        self.input_layernorm_moe_gen = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm_moe_gen = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, context: Tensor, latents: Tensor, layout: Layout, recompute: Recompute = call
    ) -> tuple[Tensor, Tensor]:
        """Run the layer; arguments and result as in :class:`BagelAttention`.

        ``recompute`` calls the part of the feed-forward block that costs little time and much memory.
        """
        context_update, latents_update = self.self_attn(
            self.input_layernorm(context), self.input_layernorm_moe_gen(latents), layout
        )
        context = context + context_update
        latents = latents + latents_update
        context = context + self.mlp(self.post_attention_layernorm(context), recompute)
        latents = latents + self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents), recompute)
        return context, latents


def timestep_features(timestep: Tensor) -> Tensor:
    """Sinusoidal features of the noise level, cosines first.

    The adapter computes them before the module is called, because mixed-precision wrappers round every floating
    input of ``forward`` to bf16: the features bear that, the noise level itself does not.

    Args:
        timestep: ``(B,)`` noise levels.

    Returns:
        ``(B, 256)`` float32.
    """
    half = 256 // 2
    steps = torch.arange(half, dtype=torch.float32, device=timestep.device)
    frequencies = torch.exp(-math.log(10000.0) * steps / half)
    angles = timestep.float()[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


class TimestepEmbedder(nn.Module):
    """Two-layer perceptron over :func:`timestep_features`."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(B, 256)`` features to ``(B, hidden)``."""
        return self.mlp(features)


def sincos_table(size: int, side: int) -> Tensor:
    """Fixed 2-D sine-cosine table, columns in the first half of the channels and rows in the second.

    Only a model that is built without a checkpoint computes it; a checkpoint brings its own.

    Args:
        size: channels, divisible by four.
        side: patches along one side of the grid.

    Returns:
        ``(side * side, size)`` float32, row-major over the grid.
    """
    quarter = size // 4
    rates = 10000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    angles = torch.arange(side, dtype=torch.float64)[:, None] * rates
    axis = torch.cat((angles.sin(), angles.cos()), dim=-1)
    rows, columns = axis[:, None].expand(side, side, -1), axis[None].expand(side, side, -1)
    return torch.cat((columns, rows), dim=-1).reshape(side * side, size).float()


class PositionTable(nn.Module):
    """Frozen table of latent positions, indexed by ``row * side + column``."""

    def __init__(self, side: int, hidden_size: int):
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(side * side, hidden_size), requires_grad=False)
        if not self.pos_embed.is_meta:
            self.pos_embed.data.copy_(sincos_table(hidden_size, side))

    def forward(self, position_ids: Tensor) -> Tensor:
        """Look up ``(B, N)`` integer ids; returns ``(B, N, hidden)``."""
        return self.pos_embed[position_ids]


class LoraLinear(lora.Linear):
    """PEFT's LoRA layer with the base product accumulated into the update.

    PEFT forms the update, its scaling and the sum as three more tensors of the output's size, which is a tenth of a
    training step here. Anything but one plain, unwrapped adapter in the input's dtype is left to PEFT.
    """

    def forward(self, x: Tensor, *args, **kwargs) -> Tensor:
        """Map ``(…, in_features)`` to ``(…, out_features)``."""
        name = self.active_adapters[0] if len(self.active_adapters) == 1 else None
        plain = name in self.lora_A and not (args or kwargs or self.disable_adapters or self.merged)
        plain = plain and name not in getattr(self, "lora_variant", {}) and not torch.is_autocast_enabled(x.device.type)
        # A sharding wrapper around one of the matrices shows its weight, and its dtype, only during its own forward.
        if not plain or {type(self.lora_A[name]), type(self.lora_B[name])} != {nn.Linear}:
            return super().forward(x, *args, **kwargs)
        base, down, up = self.base_layer, self.lora_A[name], self.lora_B[name]
        if type(base) is not nn.Linear or {base.weight.dtype, down.weight.dtype} != {x.dtype} or up.bias is not None:
            return super().forward(x)
        rows = x.flatten(0, -2)
        out = F.linear(down(self.lora_dropout[name](rows)) * self.scaling[name], up.weight, base.bias)
        # The large product comes last: a layer that is recomputed ends before it, since backward has no use for it.
        return out.addmm_(rows, base.weight.t()).unflatten(0, x.shape[:-1])


def open_checkpoint(model_path: str) -> dict[str, Tensor]:
    """Map the checkpoint's tensors into memory under training names; nothing is read or copied yet.

    Args:
        model_path: folder with ema.safetensors.

    Raises:
        FileNotFoundError: a weight file is missing.
        KeyError: a tensor is in neither table.
        ValueError: two tensors lead to one parameter.
    """
    state: dict[str, Tensor] = {}
    for name in CHECKPOINT_FILES:
        path = os.path.join(model_path, name)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{path} is missing")
        with safe_open(path, framework="pt", device="cpu") as file:
            for source in file.keys():  # noqa: SIM118
                target = to_training_key(source)
                if target is None:
                    continue
                if target in state:
                    raise ValueError(f"{path}: {source!r} is the second tensor that leads to parameter {target!r}")
                state[target] = file.get_tensor(source)
    return state


def check_state(expected: dict[str, Tensor], state: dict[str, Tensor], origin: str) -> None:
    """Compare names and shapes in both directions.

    Raises:
        ValueError: names every missing, unexpected and mis-shaped tensor (the first ten of each).
    """
    problems = {
        "missing": sorted(to_checkpoint_key(name) for name in expected.keys() - state.keys()),
        "unexpected": sorted(to_checkpoint_key(name) for name in state.keys() - expected.keys()),
        "mis-shaped": sorted(
            f"{to_checkpoint_key(name)} {tuple(state[name].shape)} for {tuple(expected[name].shape)}"
            for name in expected.keys() & state.keys()
            if expected[name].shape != state[name].shape
        ),
    }
    found = [
        f"{len(names)} {kind}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
        for kind, names in problems.items()
        if names
    ]
    if found:
        raise ValueError(f"{origin} does not fit BagelForTraining; " + "; ".join(found))


class BagelForTraining(NonDiffusersModelBase):
    """Velocity predictor for FlowGRPO training.

    Text padding changes nothing: each sample's image tokens stand at that sample's own text length, and padded keys
    are hidden. The computation follows the dtype of the parameters.
    """

    _no_split_modules = ["BagelMoTLayer"]
    _supports_gradient_checkpointing = True

    # Layers that are recomputed whole in the backward pass, from the first on; None is all of them. The others keep
    # their products and recompute what is cheap: the backward pass begins with them, and frees their memory first.
    checkpointed_layers: int | None = None

    def __init__(self, config: BagelTrainingConfig):
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.layers = nn.ModuleList(BagelMoTLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(hidden, config.rms_norm_eps)
        self.norm_moe_gen = RMSNorm(hidden, config.rms_norm_eps)
        self.time_embedder = TimestepEmbedder(hidden)
        self.vae2llm = nn.Linear(config.patch_latent_dim, hidden)
        self.llm2vae = nn.Linear(hidden, config.patch_latent_dim)
        self.latent_pos_embed = PositionTable(config.max_latent_size, hidden)

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        text_token_ids: Tensor | None,
        latent_pos_ids: Tensor,
        text_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor]:
        """Predict the velocity of every latent token.

        Args:
            hidden_states: ``(B, N, patch_latent_dim)`` noisy latents.
            timestep: ``(B,)`` noise levels in (0, 1], or ``(B, 256)`` :func:`timestep_features` of them.
            text_token_ids: ``(B, L)`` ids padded on the right, or None for the unconditional branch.
            latent_pos_ids: ``(B, N)`` indices into the position table.
            text_attention_mask: ``(B, L)``, true at real tokens; None where no sample is padded.

        Returns:
            ``(velocity,)`` with velocity ``(B, N, patch_latent_dim)``.
        """
        batch, device = hidden_states.shape[0], hidden_states.device
        ids = [] if text_token_ids is None else [text_token_ids]
        text_length = ids[0].shape[1] if ids else 0
        for marker in (self.config.start_of_image_id, self.config.end_of_image_id):
            ids.append(torch.full((batch, 1), marker, device=device))
        context = self.embed_tokens(torch.cat(ids, dim=1))

        features = timestep_features(timestep) if timestep.ndim == 1 else timestep
        latents = self.vae2llm(hidden_states.to(context.dtype))
        latents = latents + self.time_embedder(features.to(context.dtype))[:, None]
        latents = (latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)

        layout = Layout(text_length, text_attention_mask, latents.shape[1], self.config, device)
        whole = len(self.layers) if self.checkpointed_layers is None else self.checkpointed_layers
        for number, layer in enumerate(self.layers):
            if number < whole:
                context, latents = self._checkpointed_call(layer, context, latents, layout)
            else:
                context, latents = layer(context, latents, layout, self._checkpointed_call)
        return (self.llm2vae(self.norm_moe_gen(latents)),)

    def add_adapter(self, adapter_config, adapter_name: str = "default") -> None:
        """Inject a PEFT adapter; LoRA goes through :class:`LoraLinear`."""
        # PEFT's way to bring one's own layer for a module type; private by name, kept out of the saved config.
        if isinstance(adapter_config, LoraConfig):
            adapter_config._register_custom_module({nn.Linear: LoraLinear})
        super().add_adapter(adapter_config, adapter_name)

    def load_lora_adapter(self, adapter_path: str, adapter_name: str = "default") -> None:
        """Start from a LoRA adapter in PEFT's format.

        LoRA goes where the file has matrices: the ``target_modules`` beside them may name more, for VeRL-Omni's export
        of a sharded checkpoint keeps the last part of each name alone.

        Args:
            adapter_path: folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

        Raises:
            FileNotFoundError: one of the two is missing.
            ValueError: a matrix has no place in this model, a place has no matrix, or their shapes differ.
        """
        weights = os.path.join(adapter_path, "adapter_model.safetensors")
        for path in (os.path.join(adapter_path, "adapter_config.json"), weights):
            if not os.path.isfile(path):
                raise FileNotFoundError(f"a LoRA adapter needs {path}")
        given = {name.removeprefix("base_model.model."): tensor for name, tensor in load_file(weights).items()}
        config = LoraConfig.from_pretrained(adapter_path)
        config.inference_mode = False  # so PEFT saves it, and nothing would train
        config.target_modules = self._endings_of({name.partition(".lora_")[0] for name in given})
        self.add_adapter(config, adapter_name)
        own = get_peft_model_state_dict(self, adapter_name=adapter_name, save_embedding_layers=False)
        wrong = sorted(own.keys() ^ given.keys()) or [name for name in own if own[name].shape != given[name].shape]
        if wrong:
            raise ValueError(
                f"{weights} does not fit this model: {len(wrong)} matrices are missing, unknown or of another shape,"
                f" such as {wrong[0]}"
            )
        with torch.no_grad():
            for name, matrix in own.items():
                matrix.copy_(given[name])

    def save_lora_adapter(self, save_directory: str, adapter_name: str = "default") -> None:
        """Write a LoRA adapter in PEFT's format. The module must not be sharded."""
        self.peft_config[adapter_name].save_pretrained(save_directory)
        own = get_peft_model_state_dict(self, adapter_name=adapter_name, save_embedding_layers=False)
        tensors = {f"base_model.model.{name}": matrix.detach().cpu().contiguous() for name, matrix in own.items()}
        save_file(tensors, os.path.join(save_directory, "adapter_model.safetensors"), metadata={"format": "pt"})

    def _endings_of(self, names: set[str]) -> list[str]:
        """The shortest endings of these modules' names that no other module's name has: what PEFT takes as targets."""
        others = [f".{name}" for name, _ in self.named_modules() if name not in names]
        found = set()
        for name in names:
            parts = name.split(".")
            endings = (".".join(parts[at:]) for at in range(len(parts) - 1, 0, -1))
            found.add(next((end for end in endings if not any(o.endswith(f".{end}") for o in others)), name))
        return sorted(found)

    @classmethod
    def from_pretrained(cls, model_path: str, torch_dtype: torch.dtype = torch.bfloat16, **kwargs) -> BagelForTraining:
        """Load a checkpoint without allocating it twice.

        The module is built on the meta device and takes the memory-mapped tensors as its parameters, so the pages are
        shared between processes until something writes to them. Only a change of dtype copies.

        Args:
            model_path: folder with the configuration and ema.safetensors.
            torch_dtype: dtype of the parameters.

        Raises:
            FileNotFoundError, KeyError, ValueError: the checkpoint does not fit; the message names the tensors.
        """
        config = BagelTrainingConfig.from_model_path(model_path)
        state = open_checkpoint(model_path)
        table = state.get("latent_pos_embed.pos_embed")
        if table is not None:
            # The released configuration is stale here; the table itself decides, as it does in the rollout.
            config.max_latent_size = math.isqrt(table.shape[0])
        if "embed_tokens.weight" in state:
            config.vocab_size = state["embed_tokens.weight"].shape[0]
        with torch.device("meta"):
            model = cls(config)
        check_state(model.state_dict(), state, model_path)
        model.load_state_dict(state, strict=True, assign=True)
        return model.to(torch_dtype)

    def save_pretrained(self, save_directory: str, safe_serialization: bool = True, **kwargs) -> None:
        """Write the configuration, and the weights under the checkpoint's own names.

        Adapters are not part of it: the base weights are saved, as they are without any adapter.

        Raises:
            ValueError: something else than safetensors is asked for.
        """
        if not safe_serialization:
            raise ValueError("BagelForTraining saves safetensors only")
        self._save_config(save_directory)
        base = (
            (name.replace(".base_layer.", "."), tensor)
            for name, tensor in self.state_dict().items()
            if ".lora_" not in name
        )
        state = {name: tensor.contiguous() for name, tensor in checkpoint_tensors(base)}
        save_file(state, os.path.join(save_directory, SAVED_FILE), metadata={"format": "pt"})


# As the script of the tiny checkpoint asks for them.
WEIGHTS = SimpleNamespace(files=CHECKPOINT_FILES, tensors=checkpoint_tensors)
