"""``VocabParallelEmbedding``."""

from __future__ import annotations

import torch

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embed = VocabParallelEmbedding(size, 4, quant_config=None, prefix="embed")

    def forward(self, ids):
        return self.embed(ids)
"""
)


def test_vocab_embedding(port_text: PortText) -> None:
    model = execute(port_text(TEXT)).Model(10)
    assert model.embed.weight.shape == (10, 4)
    torch.testing.assert_close(model(torch.tensor([3])), model.embed.weight[3:4])
