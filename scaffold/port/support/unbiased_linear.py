"""A linear layer whose bias somebody else adds."""

import torch
import torch.nn.functional as F
from torch import nn


class UnbiasedLinear(nn.Linear):
    """``x W^T``; the bias is a parameter that is not added here."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, in_features)`` to ``(…, out_features)``."""
        return F.linear(x, self.weight)
