"""One argument of a call over all steps of a trajectory: kept once where it stays the same.

A node is a list whose first entry says its kind; it holds plain values and tensors alone, so that it can be carried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .values import Table, equal, start_of

SAME, EACH, LATENTS, DICT, LIST, TUPLE, BEHIND, TABLE = (
    "same", "each", "latents", "dict", "list", "tuple", "behind", "table",
)  # fmt: skip


@dataclass(frozen=True)
class Latents:
    """Stands for a tensor that repeats the latents of the step."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Behind:
    """Stands for rows of what is given and, behind it along ``dim``, the latents of the step."""

    dim: int
    prefix: torch.Tensor


def kept(name: str, value: Any, before: Sequence[Any], latents: torch.Tensor) -> Any:
    """``value`` as it is carried.

    Args:
        name: of the argument, for the message.
        value: of the argument at one step.
        before: what was kept of the same argument; one of them is returned where it is the same.
        latents: ``(1, …)`` latents of the step.

    Raises:
        NotImplementedError: it cannot be carried.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() and value.numel() % latents.numel() == 0:
            row = latents.to(value.dtype).reshape(1, -1)
            if torch.equal(value.reshape(-1, latents.numel()), row.expand(value.numel() // latents.numel(), -1)):
                return Latents(tuple(value.shape), value.dtype)
        if (start := start_of(value, latents)) is not None:
            prefix, end = value.tensor_split([start[1]], dim=start[0])
            if torch.equal(end, latents.to(value.dtype).expand_as(end)):
                return Behind(start[0], prefix.clone())
        for other in before:
            if isinstance(other, torch.Tensor) and equal(other, value):
                return other
        return value
    if isinstance(value, Mapping):
        return {
            key: kept(name, item, [b[key] for b in before if isinstance(b, dict) and key in b], latents)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        made = [
            kept(name, item, [b[i] for b in before if isinstance(b, list | tuple) and i < len(b)], latents)
            for i, item in enumerate(value)
        ]
        return made if isinstance(value, list) else tuple(made)
    if value is None or isinstance(value, bool | int | float | str | torch.dtype):
        return value
    raise NotImplementedError(f"the denoiser's {name} is a {type(value).__name__}, which cannot be carried to training")


def merged(values: list[Any]) -> tuple[Any, ...]:
    """One node for the values of all steps."""
    first = values[0]
    if isinstance(first, Latents):
        if all(value == first for value in values):
            return LATENTS, first.shape, first.dtype
    elif isinstance(first, Behind):
        if all(isinstance(v, Behind) and v.dim == first.dim and equal(v.prefix, first.prefix) for v in values):
            return BEHIND, first.prefix, first.dim
    elif isinstance(first, Table):
        if all(value == first for value in values):
            return TABLE, first.name
    elif isinstance(first, dict):
        if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
            return DICT, {key: merged([value[key] for value in values]) for key in first}
    elif isinstance(first, list | tuple):
        if all(type(value) is type(first) and len(value) == len(first) for value in values):
            kind = LIST if isinstance(first, list) else TUPLE
            return kind, [merged([value[i] for value in values]) for i in range(len(first))]
    elif isinstance(first, torch.Tensor):
        if all(isinstance(value, torch.Tensor) and equal(value, first) for value in values):
            return SAME, first  # a record has one copy of what several calls are given
    elif all(type(value) is type(first) and value == first for value in values):
        return SAME, first
    return EACH, [merged([value]) for value in values]


def value_at(node: Sequence[Any], step: int, latents: torch.Tensor) -> Any:
    """The value of a node at one step, whose latents are ``(1, …)``."""
    kind, content = node[0], node[1]
    if kind == LATENTS:
        shape, dtype = node[1], node[2]
        return latents.to(dtype).reshape(1, -1).expand(math.prod(shape) // latents.numel(), -1).reshape(shape)
    if kind == BEHIND:
        rows = latents.to(content.dtype).expand(len(content), *latents.shape[1:])
        return torch.cat([content.to(latents.device), rows], dim=node[2])
    if kind == DICT:
        return {key: value_at(item, step, latents) for key, item in content.items()}
    if kind in (LIST, TUPLE):
        made = [value_at(item, step, latents) for item in content]
        return made if kind == LIST else tuple(made)
    if kind == EACH:
        return value_at(content[step], 0, latents)
    return Table(content) if kind == TABLE else content


def samples_of(node: Sequence[Any], latents: torch.Tensor) -> set[int | None]:
    """How many samples a call has by its latents, in the first dimension or a list; None where they lie otherwise."""
    kind, content = node[0], node[1]
    if kind == LATENTS:
        rows = math.prod(content) // latents.numel()
        return {rows if content[0] == rows else None}
    if kind == BEHIND:
        return {len(content)}
    if kind == LIST and all(item[0] == LATENTS and tuple(item[1]) == latents.shape[1:] for item in content):
        return {len(content)}
    inner = content.values() if kind == DICT else content if kind in (LIST, TUPLE) else ()
    return {rows for item in inner for rows in samples_of(item, latents)}
