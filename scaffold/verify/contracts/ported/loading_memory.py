"""Loading maps the checkpoint instead of copying it."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.contracts.loading_memory import LIMIT, _Allocations
from scaffold.verify.measured import Measured
from scaffold.verify.subject.checkpoint import load


def run(subject: Any) -> Measured:
    """Count what loading allocates beside the tables that the denoiser computes when it is built.

    In a tiny denoiser those are as large as its weights; they do not grow with the checkpoint.
    """
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
