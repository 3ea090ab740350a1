"""What a call of the denoiser leaves in its modules: there for the backward pass, and gone behind it."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from flow_grpo_runtime.module import TrainedDenoiser


class Cache(torch.nn.Module):
    kept: torch.Tensor | None = None


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.cache = torch.nn.Parameter(torch.tensor(2.0)), Cache()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        self.cache.kept = hidden_states * self.weight
        made: torch.Tensor = checkpoint(self._layer, hidden_states, use_reentrant=False)
        return made

    def _layer(self, hidden_states: torch.Tensor) -> torch.Tensor:
        assert self.cache.kept is not None, "computed again without what the call had left"
        return (hidden_states + self.cache.kept).sin()


class Trained(TrainedDenoiser, Denoiser):
    _common: Any = SimpleNamespace(CALLS=SimpleNamespace(method="forward", output=None))
    _state = ((Cache, "kept", None),)


@pytest.mark.parametrize("trained", [True, False])
def test_a_cache_lasts_until_the_backward_pass_is_over(trained: bool) -> None:
    module = Trained()
    with torch.set_grad_enabled(trained):
        first, second = (module(hidden_states=torch.randn(3))[0] for _ in range(2))
    assert (module.cache.kept is not None) == trained
    if trained:
        kept = weakref.ref(module.cache.kept)
        (first.sum() + second.sum()).backward()
        assert module.weight.grad is not None
        assert module.cache.kept is None
        assert kept() is None
