"""Where text, markers and latents stand, for each sample of a ragged batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flow_grpo_runtime import layouts
from flow_grpo_runtime.layouts import RotaryTables
from flow_grpo_runtime.references import Reference, ReferenceLayout

MASK = torch.tensor([[1, 1, 1], [1, 0, 0]])
GRID = torch.cartesian_prod(torch.arange(2), torch.arange(3)).expand(2, -1, -1)


def shown(positions: torch.Tensor) -> RotaryTables:
    """The positions themselves in place of tables."""
    return RotaryTables(positions, positions, [])


def made(name: str, latents: Any, **options: Any) -> Any:
    kind = getattr(layouts, f"{name}Layout")
    return kind(3, MASK, latents, shown, torch.device("cpu"), **options)


@pytest.mark.parametrize("name", ["TextLength", "Sequential", "GridFixed", "GridSequential"])
def test_padded_keys_are_hidden_and_no_other(name: str) -> None:
    latents = 6 if name in ("TextLength", "Sequential") else GRID
    layout = made(name, latents, before=1, after=1, **({"origin": 9} if name == "GridFixed" else {}))
    assert layout.key_mask.tolist() == [[True] * 3 + [True] * 8, [True, False, False] + [True] * 8]
    assert layout.text_mask is None


def test_text_that_attends_both_ways_keeps_a_key_of_a_sample_without_text() -> None:
    layout = layouts.GridLayout(3, torch.tensor([[0, 0, 0]]), GRID[:1], shown, torch.device("cpu"), causal=False)
    assert layout.text_mask is not None
    assert layout.text_mask.tolist() == [[True, False, False]]


def test_the_origin_lies_at_the_length_of_each_text() -> None:
    layout = made("TextLength", 6, before=1, after=1)
    assert layout.rotary.cos.tolist() == [[-3, -2, -1, 0, 0], [-1, 0, 1, 0, 0]]
    assert layout.latent_rotary is None


def test_markers_behind_the_latents_count_on_behind_them() -> None:
    layout = made("Sequential", 6, before=1, after=1)
    assert layout.rotary.cos[:, 3:].tolist() == [[3, 10], [1, 8]]
    assert layout.latent_rotary.cos.tolist() == [[4, 5, 6, 7, 8, 9], [2, 3, 4, 5, 6, 7]]


def test_a_grid_may_stand_at_the_time_behind_the_text_at_an_origin_or_follow_the_text() -> None:
    at_time = made("Grid", GRID)
    assert at_time.rotary.cos[0].tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert at_time.latent_rotary.cos[:, 5].tolist() == [[3, 1, 2], [1, 1, 2]]
    fixed = made("GridFixed", GRID, origin=100, before=1)
    assert fixed.rotary.cos[1, 3].tolist() == [1, 1, 1]
    assert fixed.latent_rotary.cos[:, 5].tolist() == [[100, 101, 102]] * 2
    following = made("GridSequential", GRID, before=1, after=1)
    assert following.latent_rotary.cos[:, 5].tolist() == [[4, 5, 6], [2, 3, 4]]
    assert following.rotary.cos[:, 4].tolist() == [[7, 7, 7], [5, 5, 5]]  # behind the longer side, of three


def test_a_reference_stands_before_the_text_and_its_padding_is_hidden() -> None:
    reference = Reference(
        torch.zeros(2, 2, 4),
        torch.zeros(2, 2),
        torch.zeros(2, 1, 8),
        torch.tensor([[True, True], [True, False]]),
        torch.tensor([[True], [True]]),
    )
    layout = ReferenceLayout(3, MASK, 6, shown, torch.device("cpu"), reference, before=1, after=1)
    assert (layout.reference_length, layout.prefix_length) == (2, 5)
    assert layout.rotary.cos[0].tolist() == [-5, -5, -4, -4, -4, -3, -2, -1, 0, 0]
    assert layout.latent_rotary is not None
    assert layout.latent_rotary.cos[1].tolist() == [-3, -3, *[0] * 6]
    assert layout.key_mask is not None
    assert layout.text_mask is not None
    assert layout.key_mask[1].tolist() == [True] * 5 + [True, False, False] + [True] * 2 + [True, False] + [True] * 6
    # Keys of text: the reference's latents, the prefix, then text up to each token.
    assert layout.text_mask[1, 1].tolist() == [True, False] + [True] * 5 + [True, False, False]
    without = ReferenceLayout(3, MASK, 6, shown, torch.device("cpu"), None, before=1, after=1)
    assert without.latent_rotary is None
    assert without.prefix_length == 0
