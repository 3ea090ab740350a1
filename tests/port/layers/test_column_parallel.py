"""``ColumnParallelLinear``."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pair = ColumnParallelLinear(width, 2 * width, bias=False, gather_output=True)
        self.alone = ColumnParallelLinear(
            input_size=2 * width, output_size=3, return_bias=False, quant_config=None, prefix="x"
        )
        self.width = self.pair.output_size_per_partition

    def forward(self, x):
        y, _ = self.pair(x)
        z = self.pair(x)[0]
        whole = self.pair(x)
        return self.alone(y) + self.alone(z) + self.alone(whole[0])
"""
)


def test_column_parallel(port_text: PortText) -> None:
    port = port_text(TEXT)
    model = execute(port).Model(4)
    x = torch.randn(2, 4)
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "pair.weight": (8, 4),
        "alone.weight": (3, 8),
        "alone.bias": (3,),
    }
    assert model.width == 8
    torch.testing.assert_close(model(x), 3 * model.alone(model.pair(x)))
    assert not port.gaps
