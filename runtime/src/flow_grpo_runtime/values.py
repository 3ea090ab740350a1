"""Arguments of a call as nested values: dictionaries, lists and tuples of tensors and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Table:
    """Stands for a table that training computes from its own denoiser."""

    name: str


def copied(value: Any) -> Any:
    """A copy of tensors, dictionaries, lists and tuples, that later changes do not reach."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        made = [copied(item) for item in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def keys_of(value: Any) -> list[Any]:
    """Keys of a dictionary, places of a list or tuple."""
    return list(value) if isinstance(value, Mapping) else list(range(len(value)))


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same in shape, dtype, device and values."""
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def same(a: Any, b: Any) -> bool:
    """Whether a copy says what the original says now."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and equal(a, b)
    if isinstance(a, Mapping | list | tuple) and isinstance(b, Mapping | list | tuple):
        return keys_of(a) == keys_of(b) and all(same(a[key], b[key]) for key in keys_of(a))
    return a is b or (isinstance(a, bool | int | float | str | Table) and type(a) is type(b) and a == b)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors among nested values."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def place_of(tensor: torch.Tensor) -> int:
    """Where its numbers lie: the same for a tensor and its views."""
    return int(tensor.untyped_storage().data_ptr())


def rows_of(
    output: Any, latents: torch.Tensor, key: str | int | None = None, *, front: bool = False
) -> list[torch.Tensor]:
    """Take the predictions of one call apart.

    Args:
        output: what the denoiser returned: a tensor, a list of tensors, or either first in a tuple or as ``sample``.
        latents: ``(1, …)`` latents of the sample.
        key: of the prediction in ``output``, where it is none of these.
        front: of a prediction that is longer along one dimension, the latents' part stands in front.

    Returns:
        Predictions in the shape of ``latents``; more than one where the call evaluated several branches as a batch.
        Of a prediction that is longer along one dimension it is the end, or the front: the rest is that of what is
        given, and has no step.

    Raises:
        TypeError: the output is nothing of that kind.
    """
    rows: list[torch.Tensor] = []
    for part in parts_of(output, key):
        start = start_of(part, latents)
        part = part if start is None else part.narrow(start[0], 0 if front else start[1], latents.shape[start[0]])
        if not isinstance(part, torch.Tensor) or not part.numel() or part.numel() % latents.numel():
            found = tuple(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
            raise TypeError(f"the denoiser returned {found}, which is no prediction for latents {tuple(latents.shape)}")
        rows += torch.split(part.reshape(-1, *latents.shape[1:]), 1)
    return rows


def parts_of(output: Any, key: str | int | None = None) -> list[Any]:
    """What holds the predictions in what a denoiser returned; see :func:`rows_of`."""
    if key is not None:
        output = output if isinstance(output, torch.Tensor) else output[key]
    else:
        output = output[0] if isinstance(output, tuple) else getattr(output, "sample", output)
    return output if isinstance(output, list) else [output]


def start_of(value: Any, latents: torch.Tensor) -> tuple[int, int] | None:
    """The dimension in which rows are longer than the latents, and where the latents would begin; None for others."""
    if not isinstance(value, torch.Tensor) or value.ndim != latents.ndim:
        return None
    longer = [i for i in range(1, latents.ndim) if value.shape[i] != latents.shape[i]]
    start = value.shape[longer[0]] - latents.shape[longer[0]] if len(longer) == 1 else 0
    return (longer[0], start) if start > 0 else None
