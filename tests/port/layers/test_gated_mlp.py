"""vllm's gated MLPs, used directly."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.models.qwen3 import Qwen3MLP


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Qwen3MLP(hidden_size=4, intermediate_size=6, hidden_act="silu", quant_config=None, prefix="mlp")

    def forward(self, x):
        return self.mlp(x)
"""
)


def test_gated_mlp(port_text: PortText) -> None:
    port = port_text(TEXT)
    model = execute(port).Model()
    x = torch.randn(2, 4)
    expected = model.mlp.down_proj(F.silu(model.mlp.gate_proj(x)) * model.mlp.up_proj(x))
    torch.testing.assert_close(model(x), expected)
    assert [(entry.name, entry.parts) for entry in port.fused] == [("gate_up_proj", ("gate_proj", "up_proj"))]
