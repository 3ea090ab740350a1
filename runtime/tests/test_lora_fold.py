"""LoRA in the rollout engine: folded anew each time, in the memory that the engine's parameters have."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from flow_grpo_runtime import lora_updates
from flow_grpo_runtime.checkpoint import DenoiserSource
from flow_grpo_runtime.engine_weights import fill_denoiser, fold_by_name, mapped_checkpoint, sent_name
from flow_grpo_runtime.lora_updates import LoraFold, digest

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


class Reads(dict[str, torch.Tensor]):
    """A checkpoint's tensors that says which of them are asked for."""

    asked: ClassVar[list[str]] = []

    def __getitem__(self, name: str) -> torch.Tensor:
        self.asked.append(name)
        return super().__getitem__(name)


@pytest.fixture
def folded(tmp_path: Path) -> tuple[LoraFold, Attention, dict[str, torch.Tensor]]:
    """A fold, the engine in bf16, and the checkpoint's weights."""
    torch.manual_seed(0)
    weights = {f"{name}.weight": torch.randn(4, 6) for name in ("q", "k", "out")}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({}))
    engine = Attention().bfloat16()
    source = DenoiserSource(build, fused=FUSED)
    fold = LoraFold(lambda: Reads(mapped_checkpoint(source, str(tmp_path))), sent_name)
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
        fold_by_name(engine, fold, given, CONFIG, FUSED)
        found = {"q": engine.qkv.weight[:4], "k": engine.qkv.weight[4:], "out": engine.out.weight}
        for name, weight in found.items():
            assert torch.equal(weight, expected(weights, given, name)), (names, name)
    assert {name: parameter.data_ptr() for name, parameter in engine.named_parameters()} == places
    assert {parameter.dtype for parameter in engine.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("change", [lambda w: w + 1, lambda w: w.flip(0), lambda w: w.flip(1), lambda w: -w])
def test_a_base_that_is_not_the_checkpoints_is_refused(folded: Any, change: Any) -> None:
    fold, engine, weights = folded
    changed = [("transformer.out.weight", change(weights["out.weight"].bfloat16()))]
    fill_denoiser(engine, fold.noting(changed), FUSED)
    with pytest.raises(ValueError, match=r"base weight 'out.weight' is not the checkpoint's"):
        fold_by_name(engine, fold, update("out"), CONFIG, FUSED)
    fold_by_name(engine, fold, update("q"), CONFIG, FUSED)


def test_a_push_reads_what_it_changes_and_digests_nothing_twice(folded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fold, engine, weights = folded
    Reads.asked.clear()
    digested: list[torch.Size] = []
    monkeypatch.setattr(lora_updates, "digest", lambda tensor: digested.append(tensor.shape) or digest(tensor))
    for names, asked in ((("q",), ["q"]), (("q",), ["q"]), (("k",), ["k", "q"]), (("k",), ["k"])):
        fold_by_name(engine, fold, update(*names), CONFIG, FUSED)
        assert [name.removesuffix(".weight") for name in Reads.asked] == asked
        Reads.asked.clear()
    assert len(digested) == 2
    fill_denoiser(engine, fold.noting([("transformer.k.weight", weights["k.weight"].bfloat16())]), FUSED)
    fold_by_name(engine, fold, update("k"), CONFIG, FUSED)
    assert len(digested) == 3  # of the actor's alone


def test_a_digest_is_of_places_bits_shape_and_dtype() -> None:
    torch.manual_seed(0)
    whole = torch.randn(9, 5)
    same = [whole, whole.clone(), whole.t().contiguous().t(), torch.cat([whole.new_zeros(1, 5), whole])[1:]]
    assert len({digest(tensor) for tensor in same}) == 1
    other = [whole.flip(0), whole.flip(1), -whole, whole.t(), whole.bfloat16(), whole.reshape(5, 9), whole[:0]]
    assert len({digest(tensor) for tensor in [whole, *other]}) == 1 + len(other)
    odd = torch.arange(5, dtype=torch.int8)
    assert digest(odd[1:4]) == digest(odd[1:4].clone()) != digest(odd[:3])
    assert digest(torch.zeros(3)) == digest(torch.zeros(3)) != digest(torch.tensor([0.0, -0.0, 0.0]))


def test_a_digest_of_several_blocks_sees_blocks_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora_updates, "_BLOCK", 4)
    tensor = torch.arange(12)
    assert digest(tensor) != digest(tensor.reshape(3, 4).flip(0).flatten())


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
        fold_by_name(engine, fold, given, config, FUSED)
    assert all(torch.equal(parameter, before[name]) for name, parameter in engine.named_parameters())


def test_where_the_base_waits_is_asked_for_by_name() -> None:
    configured = SimpleNamespace(additional_config={"lora_base": "card"})
    assert lora_updates.base_place(configured) == "card"
    assert lora_updates.base_place(SimpleNamespace(additional_config=None)) == "mapped"
    assert lora_updates.base_place(SimpleNamespace()) == "mapped"
    configured.additional_config["lora_base"] = "disk"
    with pytest.raises(ValueError, match="lora_base is 'disk', which is none of mapped, pinned, card"):
        lora_updates.base_place(configured)


def test_a_base_that_is_kept_is_read_once(folded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fold, _, weights = folded
    kept = LoraFold(fold._opened, sent_name, "card")
    meta = torch.device("meta")  # any device but the CPU
    monkeypatch.setattr(lora_updates, "digest", lambda tensor: "")
    Reads.asked.clear()
    for _ in range(2):
        made = dict(kept.folded(update("q", "k"), CONFIG, lambda name: (meta, torch.bfloat16)))
        assert {name: tensor.device.type for name, tensor in made.items()} == {
            "transformer.q.weight": "meta",
            "transformer.k.weight": "meta",
        }
    assert sorted(Reads.asked) == ["k.weight", "q.weight"]
