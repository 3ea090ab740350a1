"""Layers that composed training modules are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Recompute = Callable[..., Tensor]


def call(function: Recompute, *args: Tensor) -> Tensor:
    """``function(*args)``; the default of ``recompute``, which recomputes nothing."""
    return function(*args)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, accumulated in float32 whatever the input's dtype.

    Args:
        size: length of the normalised dimension.
        eps: added to the mean square.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` of shape ``(…, size)``; shape and dtype stay."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def normalise_parts(x: Tensor, norms: Sequence[nn.Module]) -> Tensor:
    """Normalise equal parts of the last dimension, each by its own norm; shape and dtype stay."""
    if len(norms) == 1:
        return norms[0](x)  # type: ignore[no-any-return]
    parts = x.chunk(len(norms), dim=-1)
    return torch.cat([norm(part) for norm, part in zip(norms, parts, strict=True)], dim=-1)


def expanded(x: Tensor, heads: int) -> Tensor:
    """Repeat each head of ``(B, L, kv_heads, head_dim)`` for the ``heads`` of the queries that share it."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Grouped-query attention.

    Args:
        q: ``(B, Lq, heads, head_dim)``.
        k, v: ``(B, Lk, kv_heads, head_dim)``.
        key_mask: ``(B, Lk)`` or ``(B, Lq, Lk)``, true where a key may be attended to; None attends to all and keeps
            the fast kernels.
        causal: query i sees keys 0…i.

    Returns:
        ``(B, Lq, heads * head_dim)``.
    """
    if key_mask is not None:  # kernels that take a mask know no groups
        k, v = expanded(k, q.shape[2]), expanded(v, q.shape[2])
        key_mask = key_mask[:, None, None, :] if key_mask.ndim == 2 else key_mask[:, None]
    grouped = k.shape[2] < q.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)


class GatedMLP(nn.Module):
    """Feed-forward block ``down(silu(gate(x)) * up(x))``.

    Args:
        hidden: width of the model.
        intermediate: width inside.
        bias: whether the three layers have one.
    """

    def __init__(self, hidden: int, intermediate: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.up_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)

    def forward(self, x: Tensor, recompute: Recompute = call) -> Tensor:
        """Map ``(B, L, hidden)`` to ``(B, L, hidden)``."""
        return recompute(self._contract, self.gate_proj(x), self.up_proj(x))

    def _contract(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.down_proj(F.silu(gate) * up)  # type: ignore[no-any-return]


class PlainMLP(nn.Module):
    """Feed-forward block ``down(gelu(up(x)))``.

    Args:
        hidden: width of the model.
        intermediate: width inside.
        bias: whether both layers have one.
        approximate: of GELU, ``none`` or ``tanh``.
    """

    def __init__(self, hidden: int, intermediate: int, bias: bool = False, approximate: str = "none") -> None:
        super().__init__()
        self.up_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)
        self.approximate = approximate

    def forward(self, x: Tensor, recompute: Recompute = call) -> Tensor:
        """Map ``(B, L, hidden)`` to ``(B, L, hidden)``."""
        return recompute(self._contract, self.up_proj(x))

    def _contract(self, up: Tensor) -> Tensor:
        return self.down_proj(F.gelu(up, approximate=self.approximate))  # type: ignore[no-any-return]


def sinusoidal_features(values: Tensor, count: int, max_period: float, sines_first: bool = False) -> Tensor:
    """Cosines and sines of values at frequencies that fall from 1 to nearly ``1 / max_period``.

    Args:
        values: ``(B,)``.
        count: number of features, even.
        max_period: of the lowest frequency.
        sines_first: sines stand before the cosines.

    Returns:
        ``(B, count)`` float32.
    """
    half = count // 2
    steps = torch.arange(half, dtype=torch.float32, device=values.device)
    angles = values.float()[:, None] * torch.exp(-math.log(max_period) * steps / half)
    features = angles.cos(), angles.sin()
    return torch.cat(features[::-1] if sines_first else features, dim=-1)


class TimestepEmbedder(nn.Module):
    """Two-layer perceptron over :func:`sinusoidal_features`.

    Args:
        features: number of them.
        hidden: width of the model.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(B, features)`` to ``(B, hidden)``."""
        return self.mlp(features)  # type: ignore[no-any-return]


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

    def __init__(self, side: int, hidden: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(side * side, hidden), requires_grad=False)
        if not self.pos_embed.is_meta:
            self.pos_embed.data.copy_(sincos_table(hidden, side))

    def forward(self, position_ids: Tensor) -> Tensor:
        """Look up ``(B, N)`` integer ids; returns ``(B, N, hidden)``."""
        return self.pos_embed[position_ids]


class Exact:
    """Latents and noise levels in float32, for the part of the computation that rounding would spoil.

    A plain class on purpose: mixed-precision wrappers round every floating tensor among the arguments of ``forward``,
    but do not look into other objects.

    Args:
        latents: ``(B, N, patch_latent_dim)`` noisy latents.
        sigma: ``(B,)`` noise levels.
    """

    def __init__(self, latents: Tensor, sigma: Tensor) -> None:
        self.latents = latents.detach().float()
        self.sigma = sigma.detach().float()

    @classmethod
    def of(cls, exact: Exact | None, latents: Tensor, timestep: Tensor) -> Exact:
        """``exact``, or one of the arguments of ``forward``.

        Raises:
            ValueError: nothing was passed on, and ``timestep`` is features.
        """
        if exact is None and timestep.ndim != 1:
            raise ValueError("features do not tell the noise level: pass `exact` with them")
        return exact or cls(latents, timestep)

    def velocity(self, clean: Tensor, floor: float, highest: float | None = None) -> Tensor:
        """Velocity ``dx / dsigma = (x - x0) / sigma`` along the line from the predicted clean latents to the noise.

        Args:
            clean: ``(B, N, patch_latent_dim)`` prediction ``x0`` of the clean latents, in the scale of ``latents``.
            floor: noise levels below count as that.
            highest: noise levels above count as that; None has no limit.

        Returns:
            ``(B, N, patch_latent_dim)`` float32.
        """
        return (self.latents - clean) / self.sigma.clamp(floor, highest)[:, None, None]
