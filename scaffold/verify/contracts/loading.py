"""A checkpoint that does not fit is refused."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaffold.verify.formulas import same
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.checkpoint import CheckpointWriter, checkpoint_writer, load
from scaffold.verify.subject.source_words import SAFETENSORS, literals

# Checkpoints of two files and an index, for a loader that looks for several.


def lost_shards(subject: Any, writer: CheckpointWriter, folder: Path, state: dict[str, Tensor]) -> list[str]:
    """Return what is wrong with how the package loads two files.

    Empty if its code has neither a file pattern nor an index, or if it takes a single file and also refuses a second,
    empty one.

    Args:
        subject: the package.
        writer: of its checkpoints.
        folder: for trials.
        state: the weights.
    """
    words = literals(subject.folder)
    if not writer.file.endswith(SAFETENSORS) or not any(
        word.endswith("index.json") or ("*" in word and word.endswith(SAFETENSORS)) for word in words
    ):
        return []

    def loads(name: str, first: float) -> bool:
        writer.write(folder / name, state)
        _split(folder / name / writer.file, first)
        try:
            loaded = load(subject, folder / name).state_dict()
        except Exception:
            return False
        return all(name in loaded and torch.equal(loaded[name], value) for name, value in state.items())

    takes = [side for side, first in (("first", 1.0), ("last", 0.0)) if loads(side, first)]
    if not takes or loads("halves", 0.5):
        return []
    told = f"all but the {takes[0]} is lost" if len(takes) == 1 else "it is not loaded"
    return [f"of a checkpoint in two files and an index, {told}"]


def _split(file: Path, first: float) -> None:
    """Split one file into two files and an index; ``first`` is the share of tensors in the first."""
    tensors = load_file(file)
    file.unlink()
    names = sorted(tensors)
    count = round(first * len(names))
    shards = {
        f"{file.stem}-0000{i}-of-00002{SAFETENSORS}": part for i, part in ((1, names[:count]), (2, names[count:]))
    }
    for shard, part in shards.items():
        save_file({name: tensors[name] for name in part}, file.parent / shard, metadata={"format": "pt"})
    index: dict[str, Any] = {"metadata": {"total_size": sum(value.nbytes for value in tensors.values())}}
    index["weight_map"] = {name: shard for shard, part in shards.items() for name in part}
    (file.parent / f"{file.name}.index.json").write_text(json.dumps(index), encoding="utf-8")


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


def run_recorded(subject: Any) -> Measured:
    """Load a complete checkpoint and compare every parameter; then damaged ones.

    A tensor that upstream's own loader does not use is named in the log and is not a fault: released checkpoints hold
    such tensors.
    """
    if subject.loaded:
        raise NotDrivableError(
            "VeRL-Omni loads it through diffusers, as it loads any: nothing of that is the package's"
        )
    module = subject.new_module(seed=1)  # other values than those by which the files were found out
    state = module.state_dict()
    writer = subject.checkpoint_writer()
    with tempfile.TemporaryDirectory() as folder:
        writer.write(Path(folder, "complete"), state)
        loaded = load(subject, Path(folder, "complete")).state_dict()
        unfilled = dict(module.named_parameters()).keys() - writer.names.keys()
        problems = [f"no tensor of the checkpoint fills {name}" for name in sorted(unfilled)[:2]]
        problems += [
            f"{name} is loaded with other values than the checkpoint's"
            for name in sorted(writer.names)
            if loaded[name].shape != state[name].shape or not torch.equal(loaded[name], state[name])
        ][:3]
        source = next(key for name, key in reversed(writer.names.items()) if state[name].ndim == 2)
        faults: dict[str, dict[str, Any]] = {
            f"a missing tensor ({source})": {source: None},
            f"a mis-shaped tensor ({source})": {source: torch.zeros(3, 5)},
        }
        problems += [
            f"{fault} is accepted without an error"
            for i, (fault, change) in enumerate(faults.items())
            if _accepts(subject, writer, folder, i, state, change)
        ]
        if _silent(subject, writer, Path(folder, "surplus"), state):
            problems.append("a tensor of an unknown name is passed over without a word")
    line = f"{len(writer.names)} tensors fill every parameter; damage is refused, an unknown tensor named"
    return Measured(line, problems, float(len(problems)), LIMIT, "faults")


def _silent(subject: Any, writer: Any, folder: Path, state: dict[str, Any]) -> bool:
    """Whether an unknown tensor is neither refused nor named."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    writer.write(folder, state, **{"nobody.knows.me": torch.zeros(1)})
    try:
        load(subject, folder)
    except Exception:
        return False
    finally:
        logging.getLogger().removeHandler(handler)
    return not any("nobody.knows.me" in line for line in said)
