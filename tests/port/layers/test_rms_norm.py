"""vllm's ``RMSNorm``."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.layernorm import RMSNorm


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width, eps=1e-5)

    def forward(self, x, residual=None):
        return self.norm(x) if residual is None else self.norm(x, residual)
"""
)


def test_rms_norm(port_text: PortText) -> None:
    model = execute(port_text(TEXT)).Model(6)
    torch.nn.init.normal_(model.norm.weight)
    x, residual = torch.randn(2, 6), torch.randn(2, 6)
    expected = torch.nn.functional.rms_norm(x, (6,), model.norm.weight, 1e-5)
    torch.testing.assert_close(model(x), expected)
    normalised, added = model(x, residual)
    torch.testing.assert_close(added, x + residual)
    torch.testing.assert_close(normalised, torch.nn.functional.rms_norm(x + residual, (6,), model.norm.weight, 1e-5))
    assert model(x.bfloat16()).dtype == torch.bfloat16
