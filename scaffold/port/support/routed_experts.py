"""Experts of which each token takes a few."""

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    """A gated MLP without biases."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(T, hidden_size)`` to the same."""
        projected: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return projected


class RoutedExperts(nn.ModuleList):
    """``sum_k w_k expert_k(x)`` over the ``top_k`` experts of the largest softmax probability.

    With ``renormalize`` the weights of a token's experts are made to sum to one. What all tokens go through besides,
    ``shared_experts``, is a part of the module around this one, and is added.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        intermediate_size: int,
        renormalize: bool = True,
        shared_experts: nn.Module | None = None,
    ) -> None:
        super().__init__(Expert(hidden_size, intermediate_size) for _ in range(num_experts))
        self.top_k, self.renormalize = top_k, renormalize
        self._shared = (shared_experts,)  # in a tuple it is nobody's child twice

    def forward(self, hidden_states: torch.Tensor, router_logits: torch.Tensor) -> torch.Tensor:
        """``(T, hidden_size)`` and ``(T, num_experts)`` to ``(T, hidden_size)``."""
        weights, chosen = router_logits.float().softmax(dim=-1).topk(self.top_k, dim=-1)
        if self.renormalize:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(hidden_states.dtype)
        # Every expert is called, also for no token, so that sharded parameters are gathered on every rank.
        shared = self._shared[0]
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        ends = torch.searchsorted(flat[order], torch.arange(len(self), device=flat.device), right=True)
        # The one wait for the device: how many tokens each expert gets.
        parts = hidden_states[order // self.top_k].tensor_split(ends[:-1].tolist())
        made = torch.cat([expert(part) for expert, part in zip(self, parts, strict=True)])[order.argsort()]
        mixed: torch.Tensor = (made.view(*chosen.shape, made.shape[-1]) * weights[..., None]).sum(dim=1)
        return mixed if shared is None else shared(hidden_states) + mixed
