"""Layers of composed modules against what their names say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from flow_grpo_runtime.composed_layers import Exact, PlainMLP, PositionTable, RMSNorm, normalise_parts, sincos_table
from flow_grpo_runtime.engine_config import TransformerConfig
from flow_grpo_runtime.stepped_training import SteppedTraining


def test_parts_of_a_dimension_have_their_own_norms() -> None:
    norms = [RMSNorm(4, 1e-6), RMSNorm(4, 1e-6)]
    torch.nn.init.constant_(norms[1].weight, 2.0)
    x = torch.randn(2, 3, 8)
    made = normalise_parts(x, norms)
    parts = [x[..., :4], x[..., 4:]]
    expected = [part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() for part in parts]
    assert torch.allclose(made, torch.cat((expected[0], 2 * expected[1]), dim=-1), atol=1e-6)
    assert torch.equal(normalise_parts(x[..., :4], norms[:1]), norms[0](x[..., :4]))


def test_a_plain_block_is_two_layers_around_gelu() -> None:
    block, x = PlainMLP(4, 8, bias=True, approximate="tanh"), torch.randn(1, 2, 4)
    expected = block.down_proj(F.gelu(block.up_proj(x), approximate="tanh"))
    assert torch.equal(block(x), expected)


def test_positions_are_looked_up() -> None:
    table = PositionTable(3, 8)
    assert torch.equal(table(torch.tensor([[4, 0]]))[0], sincos_table(8, 3)[[4, 0]])
    assert not table.pos_embed.requires_grad


def test_a_velocity_of_clean_latents_is_along_the_line_to_the_noise() -> None:
    latents, sigma = torch.ones(2, 1, 1), torch.tensor([0.5, 0.001])
    exact = Exact.of(None, latents, sigma)
    assert torch.allclose(exact.velocity(torch.zeros(2, 1, 1), 0.1).flatten(), torch.tensor([2.0, 10.0]))
    assert Exact.of(exact, latents, torch.ones(2, 4)) is exact
    with pytest.raises(ValueError, match="features do not tell the noise level"):
        Exact.of(None, latents, torch.ones(2, 4))


def test_a_configuration_is_read_by_key_and_by_attribute() -> None:
    config = TransformerConfig({"depth": 2})
    assert (config.depth, config.get("depth"), config.get("width", 3), config.to_dict()) == (2, 2, 3, {"depth": 2})
    with pytest.raises(AttributeError, match="width"):
        _ = config.width


def test_a_peft_that_is_too_new_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = type("Training", (SteppedTraining,), {"peft_below": "0.21"})
    config = SimpleNamespace(lora_rank=8, lora={})
    monkeypatch.setattr("peft.__version__", "0.20.1")
    kind.require_lora(config)
    monkeypatch.setattr("peft.__version__", "0.21.0")
    with pytest.raises(RuntimeError, match=r"peft 0.21.0 finds no LoRA in a sharded module"):
        kind.require_lora(config)
