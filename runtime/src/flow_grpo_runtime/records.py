"""Values of a sample on their way from the rollout to training: one block of bytes with its length in front.

TransferQueue carries tensors alone, and pads those of unlike lengths with zeros; the trainer without it concatenates
tensors of one shape, and carries anything else as it is. So a sample's values are one uint8 tensor under the former
and ``bytes`` under the latter, of the same content, and :func:`read_column` takes both.

The content is, in this order: its own length in bytes, zeros not counted, and that of the header (int64, both in the
machine's order), the header (JSON), and the tensors, each at a multiple of ``ALIGNMENT`` bytes. Reading copies nothing:
tensors are views.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

ALIGNMENT = 16
# verl-omni sets it in every process of a run that begins with `transfer_queue.enable`; v1 alone does not set it.
QUEUED = "TRANSFER_QUEUE_ENABLE"

_LENGTHS = 2 * 8
_TENSOR, _DTYPE, _DICT, _LIST, _TUPLE, _PLAIN = "t", "d", "m", "l", "u", "p"
_read: Any = WeakTensorKeyDictionary()


def write_record(content: Any) -> torch.Tensor:
    """Put values into one block.

    Args:
        content: dictionaries with plain keys, lists, tuples, tensors, dtypes, text, numbers, None; one tensor that
            is there several times is written once.

    Returns:
        ``(N,)`` uint8 on the CPU, N a multiple of ``ALIGNMENT``.

    Raises:
        TypeError: something else is among them.
    """
    tensors: list[torch.Tensor] = []
    places: dict[int, int] = {}
    table: list[tuple[str, list[int], int]] = []
    end = 0

    def described(value: Any) -> list[Any]:
        nonlocal end
        if isinstance(value, torch.Tensor):
            if id(value) not in places:
                places[id(value)] = len(tensors)
                flat = value.detach().reshape(-1)
                tensors.append(flat)
                table.append((str(flat.dtype).removeprefix("torch."), list(value.shape), end))
                end = _aligned(end + flat.numel() * flat.element_size())
            return [_TENSOR, places[id(value)]]
        if isinstance(value, torch.dtype):
            return [_DTYPE, str(value).removeprefix("torch.")]
        if isinstance(value, Mapping):
            if not all(key is None or isinstance(key, bool | int | float | str) for key in value):
                raise TypeError(f"a table with keys {list(value)[:5]} cannot be carried: they must be plain")
            return [_DICT, [[key, described(item)] for key, item in value.items()]]
        if isinstance(value, list | tuple):
            return [_LIST if isinstance(value, list) else _TUPLE, [described(item) for item in value]]
        if value is None or isinstance(value, bool | int | float | str):
            return [_PLAIN, value]
        raise TypeError(f"a {type(value).__name__} cannot be carried to training")

    tree = described(content)
    header = json.dumps({"tree": tree, "tensors": table}).encode()
    start = _aligned(_LENGTHS + len(header))
    block = torch.zeros(start + end, dtype=torch.uint8)
    block[:_LENGTHS] = torch.tensor([len(block), len(header)]).view(torch.uint8)
    block[_LENGTHS : _LENGTHS + len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    for flat, (_, _, place) in zip(tensors, table, strict=True):
        first = start + place
        block[first : first + flat.numel() * flat.element_size()].view(flat.dtype).copy_(flat)
    return block


def read_record(block: torch.Tensor) -> Any:
    """Take apart what :func:`write_record` made.

    Args:
        block: ``(N,)`` uint8; zeros behind it do not matter.

    Returns:
        The values; tensors are views of ``block``, on its device.

    Raises:
        ValueError: it is no such block, or its end is missing.
    """
    lengths = block[:_LENGTHS].cpu().clone().view(torch.int64).tolist() if len(block) >= _LENGTHS else [0, 0]
    length_of_all, size = lengths
    if not _LENGTHS <= _LENGTHS + size <= length_of_all <= len(block):
        raise ValueError(f"a record of {len(block)} bytes says that it has {length_of_all}: it was cut, or is none")
    header = json.loads(block[_LENGTHS : _LENGTHS + size].cpu().numpy().tobytes())
    start = _aligned(_LENGTHS + size)
    if (block.storage_offset() + start) % ALIGNMENT:
        block = block.clone()
    tensors: list[torch.Tensor] = []
    for name, shape, place in header["tensors"]:
        dtype = getattr(torch, name)
        count = 1
        for length in shape:
            count *= length
        first = start + place
        part = block[first : first + count * dtype.itemsize]
        tensors.append(part.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype, device=block.device))

    def whole_of(node: Sequence[Any]) -> Any:
        kind, value = node
        if kind == _TENSOR:
            return tensors[value]
        if kind == _DTYPE:
            return getattr(torch, value)
        if kind == _DICT:
            return {key: whole_of(item) for key, item in value}
        if kind in (_LIST, _TUPLE):
            made = [whole_of(item) for item in value]
            return made if kind == _LIST else tuple(made)
        return value

    return whole_of(header["tree"])


def as_column(block: torch.Tensor) -> torch.Tensor | bytes:
    """A record as a rollout returns it: ``(1, N)`` uint8 where TransferQueue carries the batch, else ``bytes``."""
    if os.environ.get(QUEUED, "0") not in ("", "0", "False", "false"):
        return block[None]
    return block.numpy().tobytes()


def read_column(batch: Any, name: str) -> list[Any]:
    """Read a column of records, one for each row of a micro-batch; a second call does not read again.

    Args:
        batch: a ``TensorDict``, or a dictionary of columns.
        name: of the column: ``(B, N)`` uint8, or ``bytes`` for each row.

    Raises:
        KeyError: there is no such column.
        ValueError: a row is no record.
    """
    if name not in batch.keys():
        raise KeyError(
            f"the micro-batch has no column {name!r}, which the rollout returns where it samples with log-probs;"
            " with trainer.use_v1, is transfer_queue.enable set too?"
        )
    column = batch[name]
    if isinstance(column, torch.Tensor):
        if column not in _read:
            rows = column.unbind() if column.is_nested else column
            _read[column] = [read_record(row) for row in rows]
        records: list[Any] = _read[column]
        return records
    return [read_record(_block(value)) for value in _rows(column)]


def _rows(column: Any) -> list[Any]:
    """Values of a column that is no tensor, whatever container the batch went through."""
    from tensordict.tensorclass import NonTensorStack
    from verl.utils import tensordict_utils as tu

    if isinstance(column, NonTensorStack):
        return [tu.unwrap_non_tensor_data(column[i]) for i in range(len(column))]
    column = tu.unwrap_non_tensor_data(column)
    return [column] if isinstance(column, bytes | torch.Tensor) else list(column)


def _block(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.reshape(-1)
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def carry_levels(scheduler: Any, levels: torch.Tensor, device: str | torch.device | None = None) -> None:
    """Put noise levels that a rollout stepped with into ``scheduler``.

    Args:
        scheduler: a ``FlowMatchSDEDiscreteScheduler``.
        levels: ``(S + 1,)`` float32, falling, the level behind the last step included.
        device: of the scheduler's tensors.
    """
    scheduler.set_shift(1.0)
    scheduler.sigmas = levels.to(device, torch.float32, copy=True)
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.num_inference_steps = len(scheduler.timesteps)
    scheduler._step_index = None
    scheduler.set_begin_index(0)
