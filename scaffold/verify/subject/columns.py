"""Columns that a rollout hands to training: an encoded prompt, and made values in the shapes that a table declares."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from scaffold.verify.declared import PROMPT, Declared

IDS, MASK = "encoded_prompt_ids", "encoded_prompt_mask"


def encoded_columns(prompts: Sequence[Sequence[int]], width: int) -> dict[str, torch.Tensor]:
    """Ids ``(B, width)`` int64, padded with zeros on the right, and the mask ``(B, width)`` that is true at ids."""
    lengths = torch.tensor([[len(ids)] for ids in prompts])
    padded = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in prompts])
    return {IDS: padded, MASK: torch.arange(width)[None] < lengths}


# How a column is called that a request's media make, such as a first frame: no prompt changes it.
_OF_MEDIA = re.compile(r"image|frame|picture|video|latent|audio|reference")
REFERENCE_SIZES = (6, 5)  # latents and features of a reference image
NEGATIVE = (3, 1)  # one for all samples, as in a run; shorter than any prompt here


def columns(declared: Declared, prompts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Values of a micro-batch by column, shorter prompts filled with zeros behind as VeRL-Omni pads them.

    A token has the same values in whatever batch it is; those of ``negative_…`` columns are one prompt's for all, and
    what by its name is made of media is the same for all.

    Args:
        declared: the package's table.
        prompts: ids per sample.

    Returns:
        ``(B, …)`` in float32; ones in int64 for a column whose name ends in ``mask``.
    """
    found = {}
    for name, shape in declared.columns.items():
        rows = [NEGATIVE if name.startswith("negative") else tuple(row) for row in prompts]
        if name.endswith("mask"):
            values = [torch.ones([len(row) if item == PROMPT else int(item) for item in shape]).long() for row in rows]
        else:
            of_media = PROMPT not in shape and _OF_MEDIA.search(name) is not None
            values = [_values(NEGATIVE if of_media else row, shape) for row in rows]
        axes = [axis for axis, item in enumerate(shape) if item == PROMPT]
        found[name] = torch.stack(values) if not axes else _padded(values, axes[0])
    return found


def reference_columns(latents: Tensor, side: int, hidden: int) -> dict[str, Tensor]:
    """What a rollout made of a reference image, by column; a sample has the same image in whatever batch it is.

    Args:
        latents: trajectories ``(B, T + 1, …, channels)``.
        side: of the square of positions.
        hidden: width of a feature.
    """
    count = REFERENCE_SIZES[0]
    shapes = {"latents": (count, latents.shape[-1]), "features": (REFERENCE_SIZES[1], hidden)}
    seeds = [int(1e6 * float(row[0].abs().max())) % 2**31 for row in latents]
    drawn = {
        name: torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        for name, shape in shapes.items()
    }
    places = (torch.arange(count) + torch.tensor(seeds)[:, None]) % side**2
    lengths = torch.tensor([[count, REFERENCE_SIZES[1]]] * len(seeds))
    return {f"reference_{name}": value for name, value in {**drawn, "positions": places, "lengths": lengths}.items()}


def _padded(values: list[Tensor], axis: int) -> Tensor:
    rows = [value.movedim(axis, 0) for value in values]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).movedim(1, axis + 1)


def _values(row: Sequence[int], shape: Sequence[int | str]) -> Tensor:
    """Values of one prompt: along its tokens each has its own, else all of them make one."""
    sizes = [int(item) for item in shape if item != PROMPT]
    if PROMPT not in shape:
        seed = sum((place + 1) * 31 * token for place, token in enumerate(row))
        return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    made = [torch.randn(sizes, generator=torch.Generator().manual_seed(1000 + token)) for token in row]
    return torch.stack(made).movedim(0, list(shape).index(PROMPT))
