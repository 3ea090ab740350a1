"""``ReplicatedLinear``, under a condition and inside a sequence."""

from __future__ import annotations

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, width, last):
        super().__init__()
        self.body = nn.Sequential(ReplicatedLinear(width, width, return_bias=False), nn.SiLU())
        self.last = (
            ReplicatedLinear(width, last, bias=False, return_bias=False, params_dtype=torch.float64)
            if last is not None
            else None
        )

    def forward(self, x):
        x = self.body(x)
        return x if self.last is None else self.last(x.double())
"""
)


@pytest.mark.parametrize("last", [None, 3])
def test_replicated(port_text: PortText, last: int | None) -> None:
    model = execute(port_text(TEXT)).Model(4, last)
    x = torch.randn(2, 4)
    body = torch.nn.functional.silu(model.body[0](x))
    torch.testing.assert_close(model(x), body if last is None else body.double() @ model.last.weight.T)
