"""Loading maps the checkpoint instead of copying it."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scaffold.verify.measured import Measured, NotDrivableError
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


def run_recorded(subject: Any) -> Measured:
    """Count what loading allocates beside the tables that the denoiser computes when it is built.

    In a tiny denoiser those are as large as its weights; they do not grow with the checkpoint.
    """
    if subject.loaded:
        raise NotDrivableError(
            "VeRL-Omni loads it through diffusers, as it loads any: nothing of that is the package's"
        )
    state = subject.new_module().state_dict()
    writer = subject.checkpoint_writer()
    size = sum(state[name].numel() * state[name].element_size() for name in writer.names)
    stem = f"{subject.name}.{subject.spec['names']['model']}"
    source: Any = importlib.import_module(f"{stem}_model").SOURCE
    weights: Any = importlib.import_module(type(source).__module__)
    with tempfile.TemporaryDirectory() as folder:
        writer.write(Path(folder), state)
        place = weights.weights_file(folder) if source.file else folder
        config = weights.EngineConfig(place, torch.float32)
        files: dict[str, Any] = {}
        if subject.spec["port"].get("reads"):  # what the builder reads by itself is not a table of its own
            config.load_file = _kept(config.load_file, files)
            with weights.parameters_on_meta():
                source.build(config)
        with _Allocations() as built, weights.parameters_on_meta():
            source.build(config)
        with _Allocations() as seen:
            load(subject, Path(folder))
    value = max(0, seen.bytes - built.bytes) / size
    return Measured(
        f"{value:.2f} times the checkpoint's size is allocated, {built.bytes:,} bytes of computed tables aside",
        (),
        value,
        LIMIT,
        "checkpoints",
    )


def _kept(read: Callable[[Any], Any], files: dict[str, Any]) -> Callable[[Any], Any]:
    """``read``, which opens each file once."""

    def reading(path: Any) -> Any:
        if str(path) not in files:
            files[str(path)] = read(path)
        return files[str(path)]

    return reading
