"""``QKVParallelLinear``: apart under the checkpoint's names, its numbers of heads kept."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv_proj = QKVParallelLinear(width, 3, heads, heads // 2, bias=False, disable_tp=True)
        self.heads = self.qkv_proj.num_heads

    def forward(self, x):
        qkv, _ = self.qkv_proj(x)
        return qkv.split([self.heads * 3, self.qkv_proj.num_kv_heads * 3, self.qkv_proj.num_kv_heads * 3], dim=-1)

    def load_weights(self, weights):
        rows = [(".qkv_proj", ".q_proj", "q"), (".qkv_proj", ".k_proj", "k"), (".qkv_proj", ".v_proj", "v")]
"""
)


def test_parts_have_the_checkpoints_names(port_text: PortText) -> None:
    port = port_text(TEXT)
    model = execute(port).Model(8, 4)
    x = torch.randn(2, 8)
    query, key, value = model(x)
    torch.testing.assert_close(query, model.q_proj(x))
    torch.testing.assert_close(key, model.k_proj(x))
    torch.testing.assert_close(value, model.v_proj(x))
    assert model.q_proj.weight.shape == (12, 8)
    assert model.v_proj.weight.shape == (6, 8)
    assert not port.gaps


def test_a_checkpoint_without_a_table_is_fused(port_text: PortText) -> None:
    model = execute(port_text(TEXT.partition("    def load_weights")[0])).Model(8, 4)
    assert [name for name, _ in model.named_parameters()] == ["qkv_proj.weight"]
    assert [part.shape[-1] for part in model(torch.randn(2, 8))] == [12, 6, 6]
