"""``MergedColumnParallelLinear``: apart under the checkpoint's names, or fused where it is fused."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_up = MergedColumnParallelLinear(width, [8, 8], bias=True)
        self.fused = MergedColumnParallelLinear(width, [6] * 2, bias=False, return_bias=False)

    def forward(self, x):
        both, _ = self.gate_up(x)
        return both, self.fused(x), self.gate_up.weight.dtype

    def load_weights(self, weights):
        table = [(".mlp.gate_up.", ".mlp.w1.", 0), (".mlp.gate_up.", ".mlp.w3.", 1)]
"""
)


def test_parts_have_the_checkpoints_names(port_text: PortText) -> None:
    port = port_text(TEXT)
    model = execute(port).Model(4)
    assert sorted(name for name, _ in model.named_parameters()) == [
        "fused.weight", "w1.bias", "w1.weight", "w3.bias", "w3.weight",
    ]  # fmt: skip
    x = torch.randn(2, 4)
    both, fused, dtype = model(x)
    torch.testing.assert_close(both, torch.cat((model.w1(x), model.w3(x)), dim=-1))
    assert fused.shape == (2, 12)
    assert dtype == torch.float32
    assert [(entry.name, entry.parts) for entry in port.fused] == [("gate_up", ("w1", "w3"))]


def test_other_parts_at_other_places_stay_fused(port_text: PortText) -> None:
    port = port_text(TEXT.replace('(".mlp.gate_up.", ".mlp.w3.", 1)', '(".other.gate_up.", ".other.v1.", 0)'))
    assert not port.fused
    assert execute(port).Model(4).gate_up.weight.shape == (16, 4)
