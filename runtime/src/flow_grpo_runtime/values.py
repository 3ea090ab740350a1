"""Arguments of a call as nested values: dictionaries, lists and tuples of tensors and plain values.

Over all steps of a trajectory an argument is a node, which keeps once what stays the same. A node is a list whose first
entry says its kind; it holds plain values and tensors alone, so that it can be carried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


SAME, EACH, LATENTS, DICT, LIST, TUPLE, BEHIND, AHEAD, TABLE = (
    "same", "each", "latents", "dict", "list", "tuple", "behind", "ahead", "table",
)  # fmt: skip


@dataclass(frozen=True)
class Latents:
    """Stands for a tensor that repeats the latents of the step."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Joined:
    """Stands for rows of what is given and, behind it along ``dim`` or ahead of it, the latents of the step."""

    dim: int
    rest: torch.Tensor
    ahead: bool = False


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
                return Joined(start[0], prefix.clone())
            front, rest = value.tensor_split([latents.shape[start[0]]], dim=start[0])
            if torch.equal(front, latents.to(value.dtype).expand_as(front)):
                return Joined(start[0], rest.clone(), ahead=True)
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
    elif isinstance(first, Joined):
        place = (first.dim, first.ahead)
        if all(isinstance(v, Joined) and (v.dim, v.ahead) == place and equal(v.rest, first.rest) for v in values):
            return AHEAD if first.ahead else BEHIND, first.rest, first.dim
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
    if kind in (BEHIND, AHEAD):
        both = [content.to(latents.device), latents.to(content.dtype).expand(len(content), *latents.shape[1:])]
        return torch.cat(both if kind == BEHIND else both[::-1], dim=node[2])
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
    if kind in (BEHIND, AHEAD):
        return {len(content)}
    if kind == LIST and all(item[0] == LATENTS and tuple(item[1]) == latents.shape[1:] for item in content):
        return {len(content)}
    inner = content.values() if kind == DICT else content if kind in (LIST, TUPLE) else ()
    return {rows for item in inner for rows in samples_of(item, latents)}
