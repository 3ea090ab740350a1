"""Rotary positions: tables of angles, and the rotation by them.

Tables are computed from the sizes of the model at every call. A buffer would be cast to the training dtype with the
module and lose its low bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class RotaryTables(NamedTuple):
    """Tables of a batch.

    Attributes:
        cos, sin: ``(B, L, 1, head_dim)`` float32.
        parts: channels of a head, shared out among runs of which each is rotated by itself.
    """

    cos: Tensor
    sin: Tensor
    parts: list[int]


def apply_rotary(x: Tensor, tables: RotaryTables) -> Tensor:
    """Rotate ``x`` of shape ``(B, L, heads, head_dim)`` in its own dtype; the halves of each part are a plane."""
    cos, sin = tables.cos.to(x.dtype), tables.sin.to(x.dtype)
    halves = [part.chunk(2, dim=-1) for part in torch.split(x, tables.parts, dim=-1)]
    return x * cos + torch.cat([part for first, second in halves for part in (-second, first)], dim=-1) * sin


def plain_tables(positions: Tensor, config: Any) -> RotaryTables:
    """Tables for one axis.

    Args:
        positions: ``(B, L)`` float32 positions; negative ones are allowed.
        config: sizes of the model: ``head_dim`` and ``rope_theta``.
    """
    angles = positions.float()[:, :, None, None] * config.rope_theta ** -_exponents(config.head_dim, positions)
    return _whole(angles, config)


def interleaved_tables(positions: Tensor, config: Any) -> RotaryTables:
    """Tables whose frequencies the three axes take in turns.

    Frequency ``j`` turns with axis ``j % 3`` while ``j < 3 * sections[j % 3]``, and with time after that.

    Args:
        positions: ``(B, L, 3)`` positions on the axes time, row and column.
        config: sizes of the model, with ``rope_sections``.
    """
    sections = config.rope_sections
    return _shared(positions, [j % 3 if j < 3 * sections[j % 3] else 0 for j in range(config.head_dim // 2)], config)


def sections_tables(positions: Tensor, config: Any) -> RotaryTables:
    """Tables whose frequencies the three axes share in runs.

    The first ``rope_sections[0]`` frequencies turn with time, the next with row, the last with column; heads of another
    size share theirs in the same proportion.

    Args:
        positions: ``(B, L, 3)`` positions on the axes time, row and column.
        config: sizes of the model, with ``rope_sections``.
    """
    runs = [axis for axis, count in enumerate(config.rope_sections) for _ in range(count)]
    count = config.head_dim // 2
    return _shared(positions, [runs[j * len(runs) // count] for j in range(count)], config)


def split_tables(positions: Tensor, config: Any) -> RotaryTables:
    """Tables that give each axis channels of its own: half of a head to time, a quarter each to row and column.

    Args:
        positions: ``(B, L, 3)`` positions on the axes time, row and column.
        config: sizes of the model, with ``rope_theta_grid`` for row and column.
    """
    parts = [config.head_dim // 2, config.head_dim // 4, config.head_dim // 4]
    angles = []
    for axis, theta in enumerate((config.rope_theta, config.rope_theta_grid, config.rope_theta_grid)):
        turned = positions[:, :, None, axis, None].float() * (1.0 / theta ** _exponents(parts[axis], positions))
        angles += [turned, turned]
    table = torch.cat(angles, dim=-1)
    return RotaryTables(table.cos(), table.sin(), parts)


def _exponents(size: int, positions: Tensor) -> Tensor:
    return torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size


def _shared(positions: Tensor, axes: Sequence[int], config: Any) -> RotaryTables:
    """Tables of which frequency ``j`` turns with axis ``axes[j]``."""
    turned = torch.stack([positions[..., axis].float() for axis in axes], dim=-1)
    angles = turned * (1.0 / config.rope_theta ** _exponents(config.head_dim, positions))
    return _whole(angles[:, :, None], config)


def _whole(angles: Tensor, config: Any) -> RotaryTables:
    angles = torch.cat((angles, angles), dim=-1)
    return RotaryTables(angles.cos(), angles.sin(), [config.head_dim])
