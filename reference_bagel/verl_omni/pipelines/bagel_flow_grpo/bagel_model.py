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

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from verl_omni.pipelines.flow_grpo_runtime.composed_module import ComposedModule
from verl_omni.pipelines.flow_grpo_runtime.released import ReleasedWeights, prefix_rules
from verl_omni.pipelines.flow_grpo_runtime.sizes import (
    SavedSizes,
    lookup,
    read_json,
    required,
    section_or_file,
    token_id,
)
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

WEIGHTS = ReleasedWeights(
    module="BagelForTraining",
    rules=prefix_rules(KEY_MAP, IGNORED_KEYS),
    files=("ema.safetensors",),
    saved="ema.safetensors",
)


@dataclass
class BagelTrainingConfig(SavedSizes):
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

    @classmethod
    def from_model_path(cls, model_path: str) -> BagelTrainingConfig:
        """Read the sizes from a released checkpoint's configuration, or from what :meth:`save_pretrained` wrote.

        Raises:
            FileNotFoundError: there is no ``config.json``.
            ValueError: a size that has no default upstream is missing.
        """
        root = read_json(model_path, "config.json")
        saved = cls.saved(root)
        if saved is not None:
            return saved
        text = section_or_file(model_path, root, "llm_config.json", "llm_config")
        return cls(
            hidden_size=required(text, "hidden_size", "llm_config.json"),
            intermediate_size=required(text, "intermediate_size", "llm_config.json"),
            num_hidden_layers=required(text, "num_hidden_layers", "llm_config.json"),
            num_attention_heads=required(text, "num_attention_heads", "llm_config.json"),
            num_key_value_heads=required(text, "num_key_value_heads", "llm_config.json"),
            vocab_size=required(text, "vocab_size", "llm_config.json"),
            rms_norm_eps=required(text, "rms_norm_eps", "llm_config.json"),
            rope_theta=required(text, "rope_theta", "llm_config.json"),
            latent_patch_size=lookup(root, "latent_patch_size", 2),
            max_latent_size=lookup(root, "max_latent_size", 32),
            latent_channel=lookup(root, "vae_config.z_channels", 16),
            vae_downsample=lookup(root, "vae_config.downsample", 8),
            start_of_image_id=token_id(
                model_path, "<|vision_start|>", root.get("start_of_image_id", cls.start_of_image_id)
            ),
            end_of_image_id=token_id(model_path, "<|vision_end|>", root.get("end_of_image_id", cls.end_of_image_id)),
        )


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


class BagelForTraining(ComposedModule, NonDiffusersModelBase):
    """Velocity predictor for FlowGRPO training.

    Text padding changes nothing: each sample's image tokens stand at that sample's own text length, and padded keys
    are hidden. The computation follows the dtype of the parameters.
    """

    _no_split_modules = ["BagelMoTLayer"]
    _supports_gradient_checkpointing = True
    config_class = BagelTrainingConfig
    weights = WEIGHTS

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

    @classmethod
    def complete(cls, config: BagelTrainingConfig, state: dict[str, Tensor]) -> None:
        """Take the size of the table of positions from the table itself."""
        table = state.get("latent_pos_embed.pos_embed")
        if table is not None:
            # The released configuration is stale here; the table itself decides, as it does in the rollout.
            config.max_latent_size = math.isqrt(table.shape[0])
