"""vllm-omni's ``Attention`` and its metadata."""

from __future__ import annotations

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute, line_of

TEXT = (
    HEAD
    + """
from vllm_omni.diffusion.attention.backends.abstract import AttentionMetadata
from vllm_omni.diffusion.attention.layer import Attention


class Model(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.attn = Attention(num_heads=4, head_size=8, softmax_scale=0.25, causal=causal, num_kv_heads=2, role="self")

    def forward(self, q, k, v, mask=None, spans=None):
        if self.attn.attn_backend.get_name() == "FASTVIDEO_VSA":
            return self.attn.attn_backend.sparse(q, k, v)
        if mask is None and spans is None:
            return self.attn(q, k, v)
        return self.attn(q, k, v, AttentionMetadata(attn_mask=mask, full_attn_spans=spans))
"""
)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Attention written out: ``allowed`` broadcasts to (batch, heads, queries, keys)."""
    k, v = k.repeat_interleave(2, dim=2), v.repeat_interleave(2, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.fixture
def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)


def test_plain_and_causal(port_text: PortText, inputs: tuple[torch.Tensor, ...]) -> None:
    port = port_text(TEXT)
    module = execute(port)
    everything = torch.ones(5, 5, dtype=torch.bool)
    torch.testing.assert_close(module.Model()(*inputs), by_hand(*inputs, everything))
    torch.testing.assert_close(module.Model(causal=True)(*inputs), by_hand(*inputs, everything.tril()))
    assert not port.gaps
    assert "sparse" not in port.source


def test_masks(port_text: PortText, inputs: tuple[torch.Tensor, ...]) -> None:
    model = execute(port_text(TEXT)).Model()
    keys = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    torch.testing.assert_close(model(*inputs, keys), by_hand(*inputs, keys[:, None, None]))
    added = torch.zeros(5, 5).masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), float("-inf"))[None, None]
    torch.testing.assert_close(model(*inputs, added), by_hand(*inputs, torch.ones(5, 5, dtype=torch.bool).tril()))


def test_spans_see_all_of_their_own_range(port_text: PortText, inputs: tuple[torch.Tensor, ...]) -> None:
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    allowed[2:4, :4] = True
    found = execute(port_text(TEXT)).Model()(*inputs, None, [[(2, 4)], [(2, 4)]])
    torch.testing.assert_close(found, by_hand(*inputs, allowed))


def test_what_plain_attention_does_not_know_raises(port_text: PortText) -> None:
    port = port_text(TEXT.replace("full_attn_spans=spans", "joint_key=k"))
    line = line_of(TEXT, "full_attn_spans=spans")
    assert [(gap.what, gap.line) for gap in port.gaps] == [("attention with joint_key", line)]
    port = port_text(TEXT.replace('role="self"', "custom_attention=nn.Identity()"))
    assert [gap.line for gap in port.gaps] == [line_of(TEXT, 'role="self"')]
