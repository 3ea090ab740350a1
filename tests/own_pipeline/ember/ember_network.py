"""The clean sample of a board of embers, from a noisy one, and the two encoders of its prompt."""

import torch
from torch import nn


class EmberEncoder(nn.Module):
    """Token ids to states of a width of its own."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.table(ids)
        return self.norm(states + nn.functional.gelu(self.mix(states)))


class EmberBlock(nn.Module):
    """Attention over embers and prompt, and a gated network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        seen = self.norm(states)
        query, key, value = (
            layer(seen).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.to_q, self.to_k, self.to_v)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        states = states + self.to_out(mixed)
        return states + self.down(nn.functional.gelu(self.up(self.mlp_norm(states))))


class EmberNetwork(nn.Module):
    """Predicts the clean board."""

    def __init__(self, width: int, depth: int, heads: int, channels: int, words_width: int, notes_width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(channels, width)
        self.words_in = nn.Linear(words_width, width)
        self.notes_in = nn.Linear(notes_width, width)
        self.level = nn.Linear(64, width)
        self.blocks = nn.ModuleList([EmberBlock(width, heads) for _ in range(depth)])
        self.leave = nn.Linear(width, channels)

    def forward(
        self, board: torch.Tensor, log_snr: torch.Tensor, words: torch.Tensor, notes: torch.Tensor
    ) -> torch.Tensor:
        waves = torch.exp(torch.linspace(-4.0, 2.0, 32, device=board.device)) * log_snr.float()[:, None]
        level = self.level(torch.cat([waves.cos(), waves.sin()], dim=-1).to(self.enter.weight.dtype))
        prompt = torch.cat([self.words_in(words), self.notes_in(notes)], dim=1)
        states = torch.cat([self.enter(board.to(self.enter.weight.dtype)) + level[:, None], prompt], dim=1)
        for block in self.blocks:
            states = block(states)
        return self.leave(states[:, : board.shape[1]])
