"""What a rollout's text encoder would have made of prompts, for training that takes embeddings instead of ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NEGATIVE = (3, 1)  # one for all samples, as in a run; shorter than any prompt here


def embeddings(prompts: Sequence[Sequence[int]], width: int) -> dict[str, Tensor]:
    """Embeddings and masks of prompts and of the negative prompt, by the engine's column.

    A token has the same vector in whatever batch it is; shorter prompts are filled with zeros behind, as the engine
    does where it unpacks a ragged batch.

    Args:
        prompts: ids per sample.
        width: of one vector.

    Returns:
        ``prompt_embeds`` and ``negative_prompt_embeds`` ``(B, L, width)`` in float32, and ``…_mask`` ``(B, L)`` in
        int64.
    """
    found = {}
    for name, rows in (("prompt_embeds", prompts), ("negative_prompt_embeds", [NEGATIVE] * len(prompts))):
        texts = [torch.stack([_vector(token, width) for token in row]) for row in rows]
        found[name] = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        ones = [torch.ones(len(row), dtype=torch.long) for row in rows]
        found[f"{name}_mask"] = torch.nn.utils.rnn.pad_sequence(ones, batch_first=True)
    return found


def _vector(token: int, width: int) -> Tensor:
    return torch.randn(width, generator=torch.Generator().manual_seed(1000 + token))
