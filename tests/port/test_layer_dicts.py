"""Layers of the engine's in a ``ModuleDict``: plain ones beside each other in it, called by their keys."""

from __future__ import annotations

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
ROWS = [(".proj.qkv.", ".proj.q.", "q"), (".proj.qkv.", ".proj.k.", "k"), (".proj.qkv.", ".proj.v.", "v"),
        (".proj.both.", ".proj.up.", 0), (".proj.both.", ".proj.gate.", 1)]


class Model(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.proj = nn.ModuleDict({
            "qkv": QKVParallelLinear(hidden_size=width, head_size=3, total_num_heads=heads, bias=False),
            "both": MergedColumnParallelLinear(6, [4, 5], bias=True),
            "pair": ReplicatedLinear(9, width, bias=True),
            "norm": nn.LayerNorm(width),
            "out": RowParallelLinear(width, width, return_bias=False),
        })
        self.heads = self.proj["qkv"].num_heads

    def forward(self, x):
        qkv, _ = self.proj["qkv"](x.to(self.proj["qkv"].weight.dtype))
        q, k, v = qkv.chunk(3, -1)
        both = self.proj["both"](q + k * v)[0]
        y, _ = self.proj["pair"](both)
        return self.proj["out"](self.proj["norm"](y)) * self.heads
"""
)
NAMES = ["q", "k", "v", "up", "gate", "pair", "norm", "out"]


def test_parts_are_entries_of_their_own(port_text: PortText) -> None:
    port = port_text(TEXT)
    assert not port.gaps
    model = execute(port).Model()
    assert list(model.proj) == NAMES
    assert [(f.owner, f.name, f.parts) for f in port.fused] == [
        ("Model", "proj.both", ("proj.up", "proj.gate")),
        ("Model", "proj.qkv", ("proj.q", "proj.k", "proj.v")),
    ]
    layers, x = model.proj, torch.randn(3, 8)
    mixed = layers["q"](x) + layers["k"](x) * layers["v"](x)
    both = torch.cat((layers["up"](mixed), layers["gate"](mixed)), dim=-1)
    torch.testing.assert_close(model(x), layers["out"](layers["norm"](layers["pair"](both))) * 2)


@pytest.mark.parametrize(
    "use",
    [
        'keep(self.proj["pair"])',
        'keep(self.proj["qkv"])',
        "[layer(x) for layer in self.proj.values()]",
        "self.proj[self.key](x)",
        'self.proj["qkv"].weight_loader',
    ],
)
def test_other_uses_of_such_a_dictionary_raise(port_text: PortText, use: str) -> None:
    text = TEXT.replace("        return self.proj[", f"        y = y + 0 * ({use})\n        return self.proj[")
    port = port_text(text.replace("\n\nclass", "\n\ndef keep(x):\n    return x\n\n\nclass"))
    assert len(port.gaps) == 1
    with pytest.raises(NotImplementedError, match="proj"):
        execute(port).Model()(torch.ones(1, 8))


def test_a_dictionary_of_layers_that_stay_as_they_are_is_left_alone(port_text: PortText) -> None:
    text = (
        HEAD
        + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": ReplicatedLinear(2, 3, return_bias=False), "b": nn.Linear(3, 2)})

    def forward(self, x):
        for layer in self.parts.values():
            x = layer(x)
        return x
"""
    )
    port = port_text(text)
    assert not port.gaps
    model, x = execute(port).Model(), torch.randn(1, 2)
    torch.testing.assert_close(model(x), model.parts["b"](model.parts["a"](x)))
