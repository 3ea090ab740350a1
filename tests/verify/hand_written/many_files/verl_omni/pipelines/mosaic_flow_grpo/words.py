"""Prompts of a micro-batch as one padded tensor."""

import numpy as np
import torch
from tensordict.tensorclass import NonTensorData, NonTensorStack


def padded(column, device):
    if isinstance(column, NonTensorStack):
        column = column.tolist()
    if isinstance(column, NonTensorData):
        column = column.data
    if isinstance(column, torch.Tensor) and not column.is_nested and column.ndim == 1:
        column = column[None]
    rows = [torch.as_tensor(np.asarray(getattr(row, "data", row), dtype=np.int64)) for row in column]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, torch.arange(ids.shape[1], device=device) < lengths[:, None]
