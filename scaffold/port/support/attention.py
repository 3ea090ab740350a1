"""Attention in the layout (batch, tokens, heads, width)."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class AttentionInputs:
    """What attention is given besides queries, keys and values.

    Attributes:
        attn_mask: ``(B, K)`` true at real keys, or anything that broadcasts to ``(B, H, Q, K)``.
        full_attn_spans: for each sample ranges of tokens that see all of their own range, the others being causal;
            used without a mask.
        extra: hints for kernels; ``valid_kv_length`` cuts the keys, nothing else has an effect here.
    """

    attn_mask: torch.Tensor | None = None
    full_attn_spans: list[list[tuple[int, int]]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class DenseAttention(nn.Module):
    """Scaled dot-product attention; fewer key and value heads are shared by groups of query heads."""

    def __init__(
        self,
        num_heads: int | None = None,
        head_size: int | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
        num_kv_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads or num_heads, head_size
        self.causal, self.softmax_scale = causal, softmax_scale

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_metadata: AttentionInputs | None = None
    ) -> torch.Tensor:
        """Return ``(B, Q, H, D)`` for a query of that shape, key and value ``(B, K, H or fewer, D)``."""
        mask, inputs = None, attn_metadata
        if inputs is not None:
            if inputs.extra.get("valid_kv_length") is not None:
                key, value = key[:, : inputs.extra["valid_kv_length"]], value[:, : inputs.extra["valid_kv_length"]]
            mask = inputs.attn_mask
            if mask is not None and mask.ndim == 2:
                mask = mask.to(torch.bool)[:, None, None, : key.shape[1]]
            elif mask is None and inputs.full_attn_spans is not None:
                mask = self._span_mask(query, key, inputs.full_attn_spans)
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        if key.shape[1] != query.shape[1]:
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=self.causal, scale=self.softmax_scale
        )
        return attended.transpose(1, 2)

    @property
    def sdpa_fallback(self) -> "DenseAttention":
        """What the engine falls back to where a kernel cannot do something: this."""
        return self

    @staticmethod
    def _span_mask(query: torch.Tensor, key: torch.Tensor, spans: list[list[tuple[int, int]]]) -> torch.Tensor:
        """Causal, and within each span full; queries are the last tokens of the keys."""
        total = key.shape[1]
        columns = torch.arange(total, device=query.device)
        masks = []
        for ranges in spans:
            reach = columns.clone()
            for start, end in ranges:
                reach[start:end] = end - 1
            masks.append(columns[None] <= reach[total - query.shape[1] :, None])
        return torch.stack(masks)[:, None]
