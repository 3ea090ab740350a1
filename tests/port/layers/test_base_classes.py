"""Base classes of the engine's: what they bring is loading and dispatch, not computing."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

LAYER = (
    HEAD
    + """
from vllm_omni.diffusion.layers.custom_op import CustomOp


class Scale(CustomOp):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward_cuda(self, x):
        from vllm._custom_ops import scale

        return scale(x, self.factor)

    def forward_native(self, x):
        return x * self.factor


class Twice(Scale):
    def forward_native(self, x):
        return 2 * super().forward_native(x)
"""
)
TEXT = (
    HEAD
    + """
from vllm_omni.diffusion.cache.base import CachedTransformer
from vllm_omni.diffusion.layers.scale import Twice


class Model(CachedTransformer):
    def __init__(self):
        super().__init__()
        self.scale = Twice(3.0)

    def forward(self, x):
        return self.scale(x)
"""
)


def test_custom_operators_compute_natively(port_text: PortText) -> None:
    port = port_text(
        TEXT,
        {
            "vllm_omni/diffusion/layers/scale.py": LAYER,
            "vllm_omni/diffusion/layers/custom_op.py": "class CustomOp:\n    pass\n",
            "vllm_omni/diffusion/cache/base.py": "class CachedTransformer:\n    pass\n",
        },
    )
    model = execute(port).Model()
    assert isinstance(model, torch.nn.Module)
    torch.testing.assert_close(model(torch.ones(2)), torch.full((2,), 6.0))
    assert "forward_cuda" not in port.source
    assert not port.gaps
