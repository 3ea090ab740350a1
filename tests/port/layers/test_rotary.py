"""``get_rope``: rotary positions of a language model, computed where they are asked for."""

from __future__ import annotations

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute, line_of

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.rotary_embedding import get_rope


class Model(nn.Module):
    def __init__(self, parameters=None, neox=True):
        super().__init__()
        self.rotary_emb = get_rope(head_size=8, max_position=64, rope_parameters=parameters, is_neox_style=neox)

    def forward(self, positions, q, k):
        return self.rotary_emb(positions, q, k)
"""
)
POSITIONS = torch.tensor([0, 5, 63])


@pytest.mark.parametrize(("neox", "theta"), [(True, 10000.0), (False, 500.0)])
def test_pairs_turn_by_position_times_frequency(port_text: PortText, neox: bool, theta: float) -> None:
    port = port_text(TEXT)
    assert not port.gaps
    model = execute(port).Model({"rope_type": "default", "rope_theta": theta}, neox)
    assert not list(model.state_dict())
    q, k = torch.randn(3, 2 * 8), torch.randn(3, 8)
    found_q, found_k = model(POSITIONS, q, k)
    for token, position in enumerate(POSITIONS.tolist()):
        for head, found in ((q[token, 8:], found_q[token, 8:]), (k[token], found_k[token])):
            for pair in range(4):
                a, b = (pair, pair + 4) if neox else (2 * pair, 2 * pair + 1)
                turned = torch.complex(head[a], head[b]) * torch.exp(torch.tensor(1j * position * theta ** (-pair / 4)))
                torch.testing.assert_close(torch.complex(found[a], found[b]), turned.to(torch.complex64))


def test_scaled_positions_raise_where_they_are_computed(port_text: PortText) -> None:
    model = execute(port_text(TEXT)).Model({"rope_type": "yarn", "rope_theta": 1e4})
    with pytest.raises(NotImplementedError, match="rotary positions of type 'yarn'"):
        model(POSITIONS, torch.randn(3, 8), torch.randn(3, 8))


def test_positions_in_chunks_have_no_counterpart(port_text: PortText) -> None:
    port = port_text(TEXT.replace("max_position=64", "max_position=64, dual_chunk_attention_config={}"))
    assert [gap.line for gap in port.gaps] == [line_of(TEXT, "self.rotary_emb = ")]
