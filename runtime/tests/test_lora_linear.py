"""LoRA in training: the same as PEFT's, and PEFT's own wherever something else than one plain adapter is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from torch import nn

from flow_grpo_runtime.composed_module import LoraLinear
from flow_grpo_runtime.lora_files import endings_of
from flow_grpo_runtime.lora_updates import lora_modules, lora_scaling, placeholder_adapter


def wrapped(kind: Any, *, bias: bool) -> Any:
    torch.manual_seed(0)
    config = LoraConfig(r=2, lora_alpha=4, init_lora_weights=False, target_modules=["layer"])
    config._register_custom_module({nn.Linear: kind})
    module = inject_adapter_in_model(config, nn.ModuleDict({"layer": nn.Linear(4, 3, bias=bias)}))
    assert type(module.layer) is kind
    return module.layer.requires_grad_(True)


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_pefts(bias: bool) -> None:
    ours, theirs = wrapped(LoraLinear, bias=bias), wrapped(lora.Linear, bias=bias)
    x = torch.randn(2, 5, 4)
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(parameter.grad, other.grad, atol=1e-4), name


@pytest.mark.parametrize("change", ["disabled", "autocast", "cast"])
def test_what_is_not_plain_is_left_to_peft(change: str) -> None:
    ours, theirs, x = wrapped(LoraLinear, bias=True), wrapped(lora.Linear, bias=True), torch.randn(2, 4)
    for layer in (ours, theirs):
        if change == "disabled":
            layer.enable_adapters(False)
        if change == "cast":
            layer.lora_A.double()
            layer.lora_B.double()
    with torch.autocast("cpu", torch.bfloat16, enabled=change == "autocast"):
        assert torch.equal(ours(x), theirs(x))


def test_the_scale_of_an_update_is_pefts() -> None:
    assert lora_scaling({"r": 4, "lora_alpha": 8}) == 2.0
    assert lora_scaling({"r": 4, "lora_alpha": 8, "use_rslora": True}) == 4.0
    with pytest.raises(ValueError, match="only plain LoRA of one rank"):
        lora_scaling({"r": 4, "lora_alpha": 8, "rank_pattern": {"q": 2}})
    with pytest.raises(ValueError, match=r"'k.lora_B.weight' and 1 more are no pairs of LoRA matrices"):
        lora_modules({"q.lora_B.bias": torch.zeros(1), "k.lora_A.weight": torch.zeros(1)})


def test_a_placeholder_needs_a_layer_that_nothing_trains() -> None:
    with pytest.raises(ValueError, match="no unused linear module to bind a placeholder adapter to"):
        placeholder_adapter(nn.Sequential(nn.Linear(2, 2)), {"r": 2}, unused=["vision."])


def test_targets_are_the_shortest_endings_of_their_own() -> None:
    module = nn.ModuleDict({"a": nn.ModuleDict({"q": nn.Linear(1, 1)}), "b": nn.ModuleDict({"q": nn.Linear(1, 1)})})
    assert endings_of(module, {"a.q", "b.q"}) == ["q"]
    assert endings_of(module, {"a.q"}) == ["a.q"]
