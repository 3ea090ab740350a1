"""Where the tokens of a sample stand, text first, then latents with markers around them; and rotary positions there.

Tables of angles are computed from the sizes of the model at every call. A buffer would be cast to the training dtype
with the module and lose its low bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
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
    return _tables_of(angles, config)


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
    return _tables_of(angles[:, :, None], config)


def _tables_of(angles: Tensor, config: Any) -> RotaryTables:
    angles = torch.cat((angles, angles), dim=-1)
    return RotaryTables(angles.cos(), angles.sin(), [config.head_dim])


Tables = Callable[[Tensor], RotaryTables]


class Layout:
    """Rotary tables, padding masks and length of the text of a batch.

    A plain class on purpose. Mixed-precision wrappers cast every floating tensor they find in a layer's arguments;
    inside this object the rotary tables keep float32.

    Args:
        text_length: padded length L of the text; 0 in a branch without text.
        text_mask: ``(B, L)``, true at real tokens, or None where no text is padded.
        behind: number of tokens behind the text.
        device: where masks and tables are made.
        in_front: number of tokens before the text.
        causal: text attends causally to text.

    Attributes:
        rotary, latent_rotary: tables of text with markers, and of latents; None where latents are not rotated.
        key_mask: true at keys that may be attended to; None where nothing is padded.
        text_mask: the same of the keys that text attends to; None where causality hides the padding.
    """

    rotary: RotaryTables
    latent_rotary: RotaryTables | None = None

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        behind: int,
        device: torch.device,
        *,
        in_front: int = 0,
        causal: bool = True,
    ) -> None:
        self.text_length = text_length
        self.causal = causal
        self.key_mask: Tensor | None = None
        self.text_mask: Tensor | None = None
        self._device = device
        self._first = torch.full((1, 1), float(text_length), device=device)  # the position behind each sample's text
        if text_length and text_mask is not None:
            text_mask = text_mask.to(torch.bool)
            self._first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)
            self.key_mask = F.pad(text_mask, (in_front, behind), value=True)
            if not causal:
                # A sample without text keeps one padded key: attention over nothing is NaN, and NaN spreads.
                self.text_mask = F.pad(text_mask[:, 1:], (1, 0), value=True)

    def _text(self) -> Tensor:
        """Positions ``(1, L)`` of the text."""
        return torch.arange(self.text_length, dtype=torch.float32, device=self._device)[None]

    def _with_markers(self, offsets: list[float | Tensor]) -> Tensor:
        """Positions ``(B, L + markers)`` of the text, and of markers at these offsets behind it."""
        text = self._text().expand(len(self._first), -1)
        return torch.cat((text, *(self._first + offset for offset in offsets)), dim=1)


class TextLengthLayout(Layout):
    """All image tokens of a sample share one rotary position, its own text length.

    Only differences of positions matter, so the origin is put there: image tokens need no rotation, text stands at
    negative positions.

    Args:
        text_length, text_mask, device, causal: as in :class:`Layout`.
        latent_length: number N of latent tokens.
        tables: rotary tables of positions ``(B, L)``.
        before, after: numbers of markers before and behind the latents.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_length: int,
        tables: Tables,
        device: torch.device,
        *,
        before: int = 0,
        after: int = 0,
        causal: bool = True,
    ) -> None:
        super().__init__(text_length, text_mask, before + after + latent_length, device, causal=causal)
        self.rotary = tables(F.pad(self._text() - self._first, (0, before + after)))


class SequentialLayout(Layout):
    """All tokens of a sample count up; arguments as in :class:`TextLengthLayout`."""

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_length: int,
        tables: Tables,
        device: torch.device,
        *,
        before: int = 0,
        after: int = 0,
        causal: bool = True,
    ) -> None:
        super().__init__(text_length, text_mask, before + after + latent_length, device, causal=causal)
        ends = [latent_length + offset for offset in range(before, before + after)]
        self.rotary = tables(self._with_markers([*range(before), *ends]))
        self.latent_rotary = tables(self._first + before + torch.arange(latent_length, device=device))


class GridLayout(Layout):
    """Text counts up in time, at row and column 0; latents stand at its length in time, at their row and column.

    Args:
        text_length, text_mask, device, causal: as in :class:`Layout`.
        latent_positions: ``(B, N, 2)`` row and column of each latent token.
        tables: rotary tables of positions ``(B, L, 3)`` on the axes time, row and column.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_positions: Tensor,
        tables: Tables,
        device: torch.device,
        *,
        causal: bool = True,
    ) -> None:
        batch, count = latent_positions.shape[:2]
        super().__init__(text_length, text_mask, count, device, causal=causal)
        # Absolute positions, as in the rollout: long prompts have angles whose float32 rounding would show otherwise.
        self.rotary = tables(F.pad(self._text()[..., None], (0, 2)))
        first = self._first[:, None].expand(batch, count, 1)
        self.latent_rotary = tables(torch.cat((first, latent_positions.float()), dim=-1))


class GridFixedLayout(Layout):
    """Text and markers count up on all three axes; latents stand at row and column of a grid with a fixed origin.

    Args:
        text_length, text_mask, latent_positions, tables, device, causal: as in :class:`GridLayout`.
        origin: row and column 0 stand there, however long the text is.
        before, after: numbers of markers before and behind the latents.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_positions: Tensor,
        tables: Tables,
        device: torch.device,
        *,
        origin: float,
        before: int = 0,
        after: int = 0,
        causal: bool = True,
    ) -> None:
        markers = before + after
        super().__init__(text_length, text_mask, markers + latent_positions.shape[1], device, causal=causal)
        # Absolute positions, as in the rollout: angles of far positions have a float32 rounding that would show.
        self.rotary = tables(self._with_markers([*range(markers)])[..., None].expand(-1, -1, 3))
        self.latent_rotary = tables(F.pad(latent_positions.float(), (1, 0)) + origin)


class GridSequentialLayout(Layout):
    """Text counts up on all three axes; latents share the next position in time and count on with row and column.

    Markers behind them count on behind the longer side. Arguments as in :class:`GridFixedLayout`.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_positions: Tensor,
        tables: Tables,
        device: torch.device,
        *,
        before: int = 0,
        after: int = 0,
        causal: bool = True,
    ) -> None:
        super().__init__(text_length, text_mask, before + after + latent_positions.shape[1], device, causal=causal)
        # Absolute positions, as in the rollout: angles of far positions have a float32 rounding that would show.
        self._first = self._first.expand(len(latent_positions), -1)
        grid = latent_positions.float()
        side = grid.amax(dim=(1, 2))[:, None] + 1 if after else 0
        positions = self._with_markers([*range(before), *(side + offset for offset in range(before, before + after))])
        self.rotary = tables(positions[..., None].expand(-1, -1, 3))
        self.latent_rotary = tables(F.pad(grid, (1, 0)) + (self._first + before)[..., None])
