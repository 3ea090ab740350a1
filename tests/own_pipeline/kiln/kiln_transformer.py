"""Velocity of a board of tiles: words and tiles have weights of their own and meet in attention."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.model_loader.weight_utils import default_weight_loader


@dataclass
class KilnConfig:
    """Sizes of the model, as ``config.json`` has them."""

    hidden_size: int = 1024
    intermediate_size: int = 2816
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int = 4
    vocab_size: int = 32000
    tile_channels: int = 12
    theta: float = 10000.0


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of channels; x is [batch, heads, tokens, channels], angles [tokens, channels / 2]."""
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2).to(x.dtype)


class KilnSide(nn.Module):
    """What words or tiles have to themselves in one layer."""

    def __init__(self, config: KilnConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = width // self.heads
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.qkv_proj = QKVParallelLinear(
            hidden_size=width,
            head_size=self.size,
            total_num_heads=self.heads,
            total_num_kv_heads=self.groups,
            bias=False,
        )
        self.o_proj = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-6)
        self.up = nn.Linear(width, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, width, bias=False)

    def heads_of(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        projected, _ = self.qkv_proj(self.norm(x))
        query, key, value = projected.split(
            [self.heads * self.size, self.groups * self.size, self.groups * self.size], dim=-1
        )
        query = query.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        key = key.unflatten(-1, (self.groups, self.size)).transpose(1, 2)
        value = value.unflatten(-1, (self.groups, self.size)).transpose(1, 2)
        return query, key, value

    def finish(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        x = x + self.o_proj(seen)
        return x + self.down(nn.functional.silu(self.up(self.mlp_norm(x))))


class KilnLayer(nn.Module):
    """Joint attention of words and tiles; the level scales and shifts the tiles first."""

    def __init__(self, config: KilnConfig) -> None:
        super().__init__()
        self.words = KilnSide(config)
        self.tiles = KilnSide(config)
        self.modulation = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def forward(
        self, words: torch.Tensor, tiles: torch.Tensor, level: torch.Tensor, angles: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scale, shift = self.modulation(nn.functional.silu(level)).unsqueeze(1).chunk(2, dim=-1)
        glazed = tiles * (1 + scale) + shift
        parts = [self.words.heads_of(words), self.tiles.heads_of(glazed)]
        query, key, value = (torch.cat(pair, dim=2) for pair in zip(*parts))
        query, key = turned(query, angles), turned(key, angles)
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, dim=1), value.repeat_interleave(repeat, dim=1)
        seen = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        count = words.shape[1]
        return self.words.finish(words, seen[:, :count]), self.tiles.finish(tiles, seen[:, count:])


class KilnTransformer(nn.Module):
    """Layers over the words of a prompt and the tiles of a board."""

    stacked = [(".qkv_proj", ".q_proj", "q"), (".qkv_proj", ".k_proj", "k"), (".qkv_proj", ".v_proj", "v")]

    def __init__(self, config: KilnConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.enter = nn.Linear(config.tile_channels, width)
        self.level = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList([KilnLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.leave = nn.Linear(width, config.tile_channels)

    def angles(self, words: int, rows: int, columns: int, device: torch.device) -> torch.Tensor:
        """Half of the channels count rows, half columns; a word stands at its own number in both."""
        size = self.config.hidden_size // self.config.num_attention_heads // 4
        rates = self.config.theta ** (-torch.arange(size, device=device, dtype=torch.float32) / size)
        line = torch.arange(words, device=device, dtype=torch.float32)
        row = torch.arange(rows, device=device, dtype=torch.float32).repeat_interleave(columns) + words
        column = torch.arange(columns, device=device, dtype=torch.float32).repeat(rows) + words
        first = torch.cat([line, row])[:, None] * rates
        second = torch.cat([line, column])[:, None] * rates
        return torch.cat([first, second], dim=-1)

    def forward(
        self, board: torch.Tensor, sigma: torch.Tensor, token_ids: torch.Tensor, rows: int, columns: int
    ) -> torch.Tensor:
        """Velocity of ``board`` [batch, rows * columns, channels] at the noise level ``sigma`` [batch]."""
        rates = torch.exp(-9.21 * torch.arange(128, device=board.device, dtype=torch.float32) / 128)
        phase = 1000.0 * sigma.float()[:, None] * rates
        level = self.level(torch.cat([phase.cos(), phase.sin()], dim=-1).to(self.enter.weight.dtype))
        words = self.embed_tokens(token_ids)
        tiles = self.enter(board.to(words.dtype))
        angles = self.angles(words.shape[1], rows, columns, board.device)
        for layer in self.layers:
            words, tiles = layer(words, tiles, level, angles)
        return self.leave(self.norm(tiles)).float()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        params = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            for fused, part, shard in self.stacked:
                if part in name:
                    name = name.replace(part, fused)
                    params[name].weight_loader(params[name], tensor, shard)
                    break
            else:
                loader = getattr(params[name], "weight_loader", default_weight_loader)
                loader(params[name], tensor)
            loaded.add(name)
        return loaded
