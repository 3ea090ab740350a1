"""``get_act_fn`` and vllm's own activations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.activation import NewGELU, get_act_fn


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
        ('get_act_fn("silu")', F.silu),
        ('get_act_fn("gelu_new")', lambda x: F.gelu(x, approximate="tanh")),
        ("NewGELU()", lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_activation(port_text: PortText, made: str, expected: object) -> None:
    x = torch.randn(5)
    found = execute(port_text(TEXT.replace("MADE", made))).Model()(x)
    torch.testing.assert_close(found, expected(x))  # type: ignore[operator]


def test_an_activation_that_is_computed_raises(port_text: PortText) -> None:
    assert port_text(TEXT.replace("MADE", "get_act_fn(torch.__version__)")).gaps
