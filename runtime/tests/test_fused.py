"""Where the engine has what training holds apart."""

from __future__ import annotations

import pytest
from torch import nn

from flow_grpo_runtime.fused import part_of, plain_modules, plain_name

FUSED = (("Attention", "qkv", ("q", "k", "v")),)
QKVParallelLinear = type("QKVParallelLinear", (nn.Linear,), {})


@pytest.mark.parametrize(("kind", "part"), [(QKVParallelLinear, "k"), (nn.Linear, 1)])
def test_a_part_of_a_fused_layer_is_named_as_its_loader_takes_it(kind: type, part: object) -> None:
    engine = nn.ModuleDict({"block": nn.ModuleDict({"qkv": kind(2, 6)})})
    targets = dict(engine.named_parameters())
    assert part_of("block.k.bias", targets, plain_modules(engine), FUSED) == ("block.qkv.bias", (part,))
    with pytest.raises(KeyError, match=r"no parameter for 'block.other.bias'"):
        part_of("block.other.bias", targets, plain_modules(engine), FUSED)


@pytest.mark.parametrize("folder", ["mlp", "mlp.routed_experts"])
@pytest.mark.parametrize(
    ("layer", "target", "shard"),
    [("gate_proj", "w13_weight", "w1"), ("up_proj", "w13_weight", "w3"), ("down_proj", "w2_weight", "w2")],
)
def test_an_expert_is_a_part_of_all(folder: str, layer: str, target: str, shard: str) -> None:
    place = f"{folder}.{target}"
    assert part_of(f"mlp.3.{layer}.weight", {place: None}, {}, ()) == (place, (place, shard, 3))


def test_names_are_plain_whatever_stands_around_a_layer() -> None:
    assert plain_name("_orig_mod.block.q.base_layer.weight") == "block.q.weight"
