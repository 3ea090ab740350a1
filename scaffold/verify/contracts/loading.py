"""A checkpoint that does not fit is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.formulas import same
from scaffold.verify.measured import Measured
from scaffold.verify.subject.checkpoint import checkpoint_writer, load
from scaffold.verify.subject.shards import lost_shards

ID = "loading"
TITLE = "a checkpoint loads completely; a missing, surplus or mis-shaped tensor stops the load"
PITFALLS = (3, 20, 22)
LIMIT = 0.0  # a parameter that nothing filled is random


def run(subject: Any) -> Measured:
    """Load a complete checkpoint and compare every parameter, then four that do not fit."""
    module = subject.new_module()
    state = module.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        writer = checkpoint_writer(subject, Path(folder, "probe"))
        writer.write(Path(folder, "complete"), state)
        made = load(subject, Path(folder, "complete"))
        # Buffers that are not saved, too: what is made on the meta device has to be computed again.
        left = [name for name, tensor in (*made.named_parameters(), *made.named_buffers()) if tensor.is_meta]
        loaded = {name: value for name, value in made.state_dict().items() if name not in left}
        problems = [f"{name} is left on the meta device" for name in left[:2]]
        problems += [f"{name} is not filled" for name in sorted(state.keys() - {*loaded, *left})[:2]]
        problems += [
            f"{name} is loaded with other values than the checkpoint's"
            for name in sorted(state.keys() & loaded.keys())
            if loaded[name].shape != state[name].shape or not same(loaded[name], state[name])
        ][:3]
        matrices = [name for name in state if state[name].ndim == 2]
        # A weight of a layer: tables that can be computed are not loss.
        source = writer.names[([name for name in matrices if ".0." in name] or matrices)[-1]]
        layered = next((writer.names[name] for name in state if ".0." in name), source)
        surplus = layered.replace(".0.", ".90.", 1) if ".0." in layered else layered + "_surplus"
        faults: dict[str, dict[str, Any]] = {
            f"a missing tensor ({source})": {source: None},
            f"a surplus tensor ({surplus})": {surplus: torch.zeros(1)},
            "a tensor of an unknown name": {"nobody.knows.me": torch.zeros(1)},
            f"a mis-shaped tensor ({source})": {source: torch.zeros(3, 5)},
        }
        accepted = [
            fault
            for i, (fault, change) in enumerate(faults.items())
            if _accepts(subject, writer, folder, i, state, change)
        ]
        problems += lost_shards(subject, writer, Path(folder, "shards"), state)
    problems += [f"{fault} is accepted without an error" for fault in accepted]
    return Measured(
        f"{len(state)} tensors of {writer.file} fill every parameter; {len(faults)} kinds of damage are refused",
        problems,
        float(len(problems)),
        LIMIT,
        "faults",
    )


def _accepts(subject: Any, writer: Any, folder: str, number: int, state: Any, change: dict[str, Any]) -> bool:
    target = Path(folder, f"fault{number}")
    writer.write(target, state, **change)
    try:
        load(subject, target)
    except Exception:
        return False
    return True
