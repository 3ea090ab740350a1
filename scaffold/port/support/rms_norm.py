"""Root mean square norm."""

import torch
from torch import nn


class PlainRMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps)`` in float32, times the weight.

    With ``residual`` the sum of both is normalised, and returned beside the result.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        var_hidden_size: int | None = None,
        has_weight: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.variance_epsilon = eps
        self.variance_size = var_hidden_size or hidden_size
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=dtype)) if has_weight else None

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Normalise the last dimension; shape and dtype stay."""
        if residual is not None:
            residual = x + residual
            x = residual
        wide = x.float()
        variance = wide[..., : self.variance_size].pow(2).mean(-1, keepdim=True)
        normalised = wide * torch.rsqrt(variance + self.variance_epsilon)
        if self.weight is not None:
            normalised = normalised.to(self.weight.dtype) * self.weight
        normalised = normalised.to(x.dtype)
        return normalised if residual is None else (normalised, residual)
