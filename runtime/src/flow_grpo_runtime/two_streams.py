"""The transformer layer of a model that attends jointly over context and latents, and keeps them apart otherwise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .composed_layers import GatedMLP, PlainMLP, Recompute, RMSNorm, attend, call, expanded, normalise_parts
from .layouts import Layout, apply_rotary
from .references import ReferenceLayout, attend_behind_reference


class TwoStreamLayer(nn.Module):
    """Pre-norm transformer layer over two streams, context and latents.

    The context takes the plain weights, the latents those with the suffix ``latent_weights``. The streams stay apart
    from the first layer to the last, so every projection is one dense product and nothing is gathered or scattered.

    Args:
        config: sizes of the model.

    Attributes:
        latent_weights: suffix of the modules that latents go through; empty where there is one set of weights.
        qkv_bias, output_bias, mlp_bias: whether those projections have a bias.
        norm_parts: suffixes of the norms of queries and keys, each over an equal part of a head; none has no norm.
        rotary_float32: queries and keys are normalised and rotated in float32, and not in their own dtype.
        gelu: the feed-forward block is that of GELU, so approximated (``none`` or ``tanh``), and not a gated one.
    """

    latent_weights: ClassVar[str] = ""
    qkv_bias: ClassVar[bool] = False
    output_bias: ClassVar[bool] = False
    mlp_bias: ClassVar[bool] = False
    norm_parts: ClassVar[tuple[str, ...]] = ("",)
    rotary_float32: ClassVar[bool] = True
    gelu: ClassVar[str] = ""

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = JointAttention(config, type(self))
        for suffix in dict.fromkeys(("", self.latent_weights)):
            sizes = hidden, config.intermediate_size, self.mlp_bias
            self.add_module(f"mlp{suffix}", PlainMLP(*sizes, self.gelu) if self.gelu else GatedMLP(*sizes))
            self.add_module(f"input_layernorm{suffix}", RMSNorm(hidden, eps))
            self.add_module(f"post_attention_layernorm{suffix}", RMSNorm(hidden, eps))

    def forward(
        self, context: Tensor, latents: Tensor, layout: Layout, recompute: Recompute = call
    ) -> tuple[Tensor, Tensor]:
        """Run the layer; arguments and result as in :class:`JointAttention`.

        ``recompute`` calls the part of the feed-forward block that costs little time and much memory.
        """
        own = self.latent_weights
        normed = (self.get_submodule(f"input_layernorm{suffix}")(x) for suffix, x in (("", context), (own, latents)))
        updates = self.self_attn(*normed, layout)
        context, latents = context + updates[0], latents + updates[1]
        latents_first = not own  # see JointAttention.forward
        if latents_first:
            latents = latents + self._fed_forward(latents, own, recompute)
        context = context + self._fed_forward(context, "", recompute)
        if not latents_first:
            latents = latents + self._fed_forward(latents, own, recompute)
        return context, latents

    def _fed_forward(self, x: Tensor, suffix: str, recompute: Recompute) -> Tensor:
        normed = self.get_submodule(f"post_attention_layernorm{suffix}")(x)
        return self.get_submodule(f"mlp{suffix}")(normed, recompute)  # type: ignore[no-any-return]


class JointAttention(nn.Module):
    """Joint attention over the context and the latents.

    Args:
        config: sizes of the model.
        kind: the layer that it is part of, which says what weights there are.
    """

    def __init__(self, config: Any, kind: type[TwoStreamLayer]) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.own, self.parts, self.wide = kind.latent_weights, kind.norm_parts, kind.rotary_float32
        hidden, q_size = config.hidden_size, config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        for suffix in dict.fromkeys(("", self.own)):
            for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                self.add_module(f"{name}_proj{suffix}", nn.Linear(hidden, size, bias=kind.qkv_bias))
            self.add_module(f"o_proj{suffix}", nn.Linear(q_size, hidden, bias=kind.output_bias))
            for part in self.parts:
                for name in "qk":
                    norm = RMSNorm(config.head_dim // len(self.parts), config.rms_norm_eps)
                    self.add_module(f"{name}_norm{part}{suffix}", norm)

    def forward(self, context: Tensor, latents: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Attend and project.

        Args:
            context: ``(B, P, hidden)``: a reference's markers and features, text, markers.
            latents: ``(B, N, hidden)``, behind those of a reference.
            layout: positions and masks of the sample.

        Returns:
            Updates of context and latents, shaped like them.
        """
        # Latents before the context, here and in the layer: FSDP1 reduces a gradient in mixed precision only where the
        # module's first call has one, and nothing uses the last layer's context.
        q_latents, k_latents, v_latents = self._projected(latents, self.own)
        q_context, k_context, v_context = self._projected(context, "")
        q_context, k_context = (
            apply_rotary(self._normed(name, x, "", self.wide), layout.rotary).to(v_context.dtype)
            for name, x in (("q", q_context), ("k", k_context))
        )
        if layout.latent_rotary is None:
            q_latents, k_latents = self._normed("q", q_latents, self.own), self._normed("k", k_latents, self.own)
        else:
            q_latents, k_latents = (
                apply_rotary(self._normed(name, x, self.own, self.wide), layout.latent_rotary).to(v_latents.dtype)
                for name, x in (("q", q_latents), ("k", k_latents))
            )
        output, own_output = self.get_submodule("o_proj"), self.get_submodule(f"o_proj{self.own}")
        if isinstance(layout, ReferenceLayout) and layout.reference_length:
            behind = (q_context, k_context, v_context), (q_latents, k_latents, v_latents)
            of_context, of_latents = attend_behind_reference(*behind, layout)
            return output(of_context), own_output(of_latents)

        text, markers = layout.text_length, context.shape[1] - layout.text_length
        k, v = torch.cat((k_context, k_latents), dim=1), torch.cat((v_context, v_latents), dim=1)
        if layout.key_mask is not None and markers:  # once for both calls that need it
            k, v = expanded(k, q_latents.shape[2]), expanded(v, q_latents.shape[2])
        latents_update = own_output(attend(q_latents, k, v, layout.key_mask))
        updates = []
        if text:
            # Padding stands to the right of the text, so causality alone hides it from every real token.
            parts = q_context[:, :text], k_context[:, :text], v_context[:, :text]
            updates.append(attend(*parts, layout.text_mask, causal=layout.causal))
        if markers:
            updates.append(attend(q_context[:, text:], k, v, layout.key_mask))
        return output(torch.cat(updates, dim=1)) if updates else torch.zeros_like(context), latents_update

    def _projected(self, x: Tensor, suffix: str) -> list[Tensor]:
        """Queries, keys and values ``(B, L, heads, head_dim)``."""
        return [self.get_submodule(f"{name}_proj{suffix}")(x).unflatten(-1, (-1, self.head_dim)) for name in "qkv"]

    def _normed(self, name: str, x: Tensor, suffix: str, wide: bool = False) -> Tensor:
        """Queries or keys behind their norms, in float32 or in their own dtype."""
        x = x.float() if wide else x
        norms = [self.get_submodule(f"{name}_norm{part}{suffix}") for part in self.parts]
        return normalise_parts(x, norms) if norms else x
