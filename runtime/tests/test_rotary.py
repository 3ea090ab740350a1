"""Tables of rotary positions: which frequencies turn with which axis, and what the rotation keeps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from flow_grpo_runtime import layouts

SIZES = SimpleNamespace(head_dim=16, rope_theta=100.0, rope_theta_grid=10.0, rope_sections=(2, 3, 3))
AXES = {
    "interleaved": [0, 1, 2, 0, 1, 2, 0, 1],  # in turns; the time's share ends after 2 of its own, the rest is time
    "sections": [0, 0, 1, 1, 1, 2, 2, 2],
}


def positions(*at: tuple[int, int, int]) -> torch.Tensor:
    """``(1, L, 3)``."""
    return torch.tensor([at], dtype=torch.float32)


@pytest.mark.parametrize("kind", AXES)
def test_each_frequency_turns_with_its_axis(kind: str) -> None:
    tables = getattr(layouts, f"{kind}_tables")(positions((2, 3, 5)), SIZES)
    angles = [(2, 3, 5)[axis] * 100.0 ** (-j / 8) for j, axis in enumerate(AXES[kind])]
    torch.testing.assert_close(tables.cos[0, 0, 0], torch.tensor([math.cos(a) for a in angles * 2]))
    torch.testing.assert_close(tables.sin[0, 0, 0], torch.tensor([math.sin(a) for a in angles * 2]))


def test_axes_may_have_channels_of_their_own() -> None:
    tables = layouts.split_tables(positions((2, 3, 5)), SIZES)
    time = [2 * 100.0 ** (-j / 4) for j in range(4)]
    row, column = ([at * 10.0 ** (-j / 2) for j in range(2)] for at in (3, 5))
    angles = [*time, *time, *row, *row, *column, *column]
    torch.testing.assert_close(tables.cos[0, 0, 0], torch.tensor([math.cos(a) for a in angles]))


@pytest.mark.parametrize("kind", ["plain", "interleaved", "sections", "split"])
def test_products_depend_on_differences_of_positions_alone(kind: str) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 16)

    def product(shift: int) -> torch.Tensor:
        at = positions((3 + shift, 1 + shift, 4 + shift), (shift, 2 + shift, shift))
        tables = getattr(layouts, f"{kind}_tables")(at if kind != "plain" else at[..., 0], SIZES)
        turned = layouts.apply_rotary(torch.cat((q, k), dim=1), tables)
        return (turned[:, 0] * turned[:, 1]).sum()

    torch.testing.assert_close(product(0), product(7), rtol=1e-4, atol=1e-5)
    assert not torch.isclose(product(0), (q * k).sum(), rtol=1e-2)


def test_the_rotation_keeps_the_dtype() -> None:
    tables = layouts.plain_tables(torch.zeros(1, 2), SIZES)
    x = torch.randn(1, 2, 3, 16).bfloat16()
    assert torch.equal(layouts.apply_rotary(x, tables), x)
    assert tables.cos.dtype == torch.float32
