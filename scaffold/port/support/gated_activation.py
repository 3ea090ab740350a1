"""Activations that gate: the first half of the channels decides how much of the second passes."""

import torch
import torch.nn.functional as F
from torch import nn


class GatedActivation(nn.Module):
    """``act(a) * b`` where ``a`` and ``b`` are the halves of the last dimension."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, 2 * D)`` to ``(…, D)``."""
        gate, passed = x.chunk(2, dim=-1)
        if self.kind == "silu":
            return F.silu(gate) * passed
        return F.gelu(gate, approximate="tanh" if self.kind == "gelu_tanh" else "none") * passed
