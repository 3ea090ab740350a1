"""``RowParallelLinear``, also one whose bias is added elsewhere."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute, line_of

TEXT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.ModuleList([RowParallelLinear(width, width, input_is_parallel=True, return_bias=False)])
        self.late = RowParallelLinear(width, width, skip_bias_add=True, return_bias=False, reduce_results=False)

    def forward(self, x):
        return self.out[0](x), self.late(x)
"""
)


def test_row_parallel(port_text: PortText) -> None:
    model = execute(port_text(TEXT)).Model(4)
    x = torch.randn(2, 4)
    plain, late = model(x)
    torch.testing.assert_close(plain, x @ model.out[0].weight.T + model.out[0].bias)
    torch.testing.assert_close(late, x @ model.late.weight.T)
    assert model.late.bias is not None


def test_a_bias_that_is_handed_out_raises(port_text: PortText) -> None:
    port = port_text(TEXT.replace("skip_bias_add=True, return_bias=False", "skip_bias_add=True"))
    assert [gap.line for gap in port.gaps] == [line_of(TEXT, "self.late =")]
    assert "skip_bias_add" in port.gaps[0].what
