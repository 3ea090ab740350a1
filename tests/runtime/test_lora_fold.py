"""LoRA in the rollout engine: folded anew each time, in the memory that the engine's parameters have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from runtime.checkpoint import DenoiserSource
from runtime.engine_weights import LoraFold, fill_denoiser

CONFIG = {"r": 2, "lora_alpha": 4}
FUSED = (("Attention", "qkv", ("q", "k")),)


class Apart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.out = (nn.Linear(6, 4, bias=False) for _ in range(3))


class Attention(nn.Module):
    """The engine's: two layers in one parameter, each with its loader's part."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 8, bias=False), nn.Linear(6, 4, bias=False)

        def load(parameter: Any, tensor: torch.Tensor, index: int) -> None:
            parameter.data[4 * index : 4 * index + 4].copy_(tensor)

        self.qkv.weight.weight_loader = load


def build(config: Any) -> tuple[nn.Module, Any]:
    return Apart(), [(None, "", None)]


@pytest.fixture
def folded(tmp_path: Path) -> tuple[LoraFold, Attention, dict[str, torch.Tensor]]:
    """A fold, the engine in bf16, and the checkpoint's weights."""
    torch.manual_seed(0)
    weights = {f"{name}.weight": torch.randn(4, 6) for name in ("q", "k", "out")}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({}))
    engine = Attention().bfloat16()
    fold = LoraFold(DenoiserSource(build, fused=FUSED), str(tmp_path))
    sent = ((f"transformer.{name}", tensor.bfloat16()) for name, tensor in weights.items())
    fill_denoiser(engine, fold.noting(sent), FUSED)
    return fold, engine, weights


def update(*names: str) -> dict[str, torch.Tensor]:
    shapes = {"A": (2, 6), "B": (4, 2)}
    return {f"transformer.{n}.lora_{side}.weight": torch.randn(*shape) for n in names for side, shape in shapes.items()}


def expected(weights: dict[str, torch.Tensor], given: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    base = weights[f"{name}.weight"].bfloat16().float()
    down, up = (given.get(f"transformer.{name}.lora_{side}.weight") for side in "AB")
    return (base if down is None else base.addmm(up, down, alpha=2.0)).bfloat16()


def test_each_update_starts_from_the_checkpoint_and_no_storage_moves(folded: Any) -> None:
    fold, engine, weights = folded
    places = {name: parameter.data_ptr() for name, parameter in engine.named_parameters()}
    for names in (("q", "out"), ("k",), ("q", "k", "out"), ()):
        given = update(*names)
        fold.fold(engine, given, CONFIG)
        found = {"q": engine.qkv.weight[:4], "k": engine.qkv.weight[4:], "out": engine.out.weight}
        for name, weight in found.items():
            assert torch.equal(weight, expected(weights, given, name)), (names, name)
    assert {name: parameter.data_ptr() for name, parameter in engine.named_parameters()} == places
    assert {parameter.dtype for parameter in engine.parameters()} == {torch.bfloat16}


def test_a_base_that_is_not_the_checkpoints_is_refused(folded: Any) -> None:
    fold, engine, weights = folded
    changed = [("transformer.out.weight", weights["out.weight"].bfloat16() + 1)]
    fill_denoiser(engine, fold.noting(changed), FUSED)
    with pytest.raises(ValueError, match=r"base weight 'out.weight' is not the checkpoint's"):
        fold.fold(engine, update("out"), CONFIG)
    fold.fold(engine, update("q"), CONFIG)


@pytest.mark.parametrize(
    ("given", "config", "message"),
    [
        (update("other"), CONFIG, "no weight of that name"),
        (update("q"), {**CONFIG, "use_dora": True}, "only plain LoRA"),
        ({"transformer.q.lora_A.weight": torch.zeros(2, 6)}, CONFIG, "no pairs of LoRA matrices"),
    ],
)
def test_what_is_no_plain_lora_of_the_model_is_refused(
    folded: Any, given: dict[str, torch.Tensor], config: dict[str, Any], message: str
) -> None:
    fold, engine, _ = folded
    before = {name: parameter.detach().clone() for name, parameter in engine.named_parameters()}
    with pytest.raises(ValueError, match=message):
        fold.fold(engine, given, config)
    assert all(torch.equal(parameter, before[name]) for name, parameter in engine.named_parameters())
