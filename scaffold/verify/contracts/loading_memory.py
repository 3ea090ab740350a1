"""Loading maps the checkpoint instead of copying it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scaffold.verify.measured import Measured
from scaffold.verify.subject.checkpoint import checkpoint_writer, load

ID = "loading-memory"
TITLE = "loading allocates no second copy of the checkpoint and draws no random weights"
PITFALLS = (4,)
# Mapped and assigned, nothing of a checkpoint's size is allocated; a float32 model built first is at least one copy.
LIMIT = 0.5


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Adds up the bytes of new tensors that have memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.bytes = 0
        self.random = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if _real(t)}
        for tensor in tree_leaves(result):
            if not _real(tensor):
                continue
            address = tensor.untyped_storage().data_ptr()
            if "normal" in str(function) or "uniform" in str(function):
                self.random += tensor.numel()
            if address not in given and address not in self._known:
                self._known.add(address)
                self.bytes += tensor.untyped_storage().nbytes()
        return result


def _real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "meta" and value.layout == torch.strided


def run(subject: Any) -> Measured:
    """Load a float32 checkpoint as float32 and count what is allocated on the way."""
    module = subject.new_module()
    state = module.state_dict()
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    subject.geometry  # noqa: B018  # found before allocations are counted
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_writer(subject, Path(folder, "probe")).write(Path(folder, "complete"), state)
        with _Allocations() as seen:
            load(subject, Path(folder, "complete"))
    value = seen.bytes / size
    drawn = f", {seen.random:,} random numbers drawn" if seen.random else ""
    return Measured(f"{value:.2f} times the checkpoint's size is allocated{drawn}", (), value, LIMIT, "checkpoints")
