"""Columns in which the rollout adapter of a composed package hands on the prompt that it encoded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

IDS, MASK = "encoded_prompt_ids", "encoded_prompt_mask"


def encoded_columns(prompts: Sequence[Sequence[int]], width: int) -> dict[str, torch.Tensor]:
    """Ids ``(B, width)`` int64, padded with zeros on the right, and the mask ``(B, width)`` that is true at ids."""
    lengths = torch.tensor([[len(ids)] for ids in prompts])
    padded = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in prompts])
    return {IDS: padded, MASK: torch.arange(width)[None] < lengths}
