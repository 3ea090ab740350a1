"""``SiluAndMul``, ``GeluAndMul`` and the function that makes them by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.activation import GeluAndMul, SiluAndMul, get_act_and_mul_fn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = MADE

    def forward(self, x):
        return self.act(x)
"""
)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("SiluAndMul()", F.silu),
        ("GeluAndMul()", F.gelu),
        ('GeluAndMul(approximate="tanh")', lambda x: F.gelu(x, approximate="tanh")),
        ('get_act_and_mul_fn("silu")', F.silu),
        ('get_act_and_mul_fn("gelu_pytorch_tanh")', lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_gated_activation(port_text: PortText, made: str, expected: object) -> None:
    model = execute(port_text(TEXT.replace("MADE", made))).Model()
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(model(torch.cat((a, b), dim=-1)), expected(a) * b)  # type: ignore[operator]


def test_an_activation_that_is_not_known_raises(port_text: PortText) -> None:
    port = port_text(TEXT.replace("MADE", 'get_act_and_mul_fn("swigluoai")'))
    assert "swigluoai" in port.gaps[0].what
