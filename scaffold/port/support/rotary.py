"""Rotary positions of a language model."""

from typing import Any

import torch
from torch import nn


class RotaryPositions(nn.Module):
    """Turns pairs of a head by the position times ``theta^(-2i/D)``; nothing is kept between calls.

    With ``is_neox_style`` the pairs are the halves of what is turned, else neighbours.
    """

    def __init__(
        self,
        head_size: int,
        max_position: int,
        is_neox_style: bool = True,
        rope_parameters: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        given = dict(rope_parameters or {})
        self.head_size, self.is_neox_style = head_size, is_neox_style
        self.kind, self.theta = given.get("rope_type", "default"), float(given.get("rope_theta", 10000))
        self.turned = int(given.get("rope_dim") or head_size * given.get("partial_rotary_factor", 1.0))

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys ``(T, heads * D)`` at positions ``(T,)``, in the shapes in which they come.

        Raises:
            NotImplementedError: the positions are scaled.
        """
        if self.kind != "default":
            raise NotImplementedError(f"rotary positions of type {self.kind!r}")
        steps = torch.arange(0, self.turned, 2, device=positions.device, dtype=torch.float32) / self.turned
        angles = positions.flatten()[:, None, None] * self.theta**-steps
        return self._turn(query, angles.cos(), angles.sin()), self._turn(key, angles.cos(), angles.sin())

    def _turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = x.reshape(cos.shape[0], -1, self.head_size)
        turned, rest = heads[..., : self.turned], heads[..., self.turned :]
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        if self.is_neox_style:
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        else:
            a, b = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        return torch.cat((turned, rest), dim=-1).reshape(x.shape)
