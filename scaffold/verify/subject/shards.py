"""Checkpoints of two files and an index, for a loader that looks for several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaffold.verify.subject.checkpoint import CheckpointWriter, load
from scaffold.verify.subject.source_words import SAFETENSORS, literals


def lost_shards(subject: Any, writer: CheckpointWriter, folder: Path, state: dict[str, Tensor]) -> list[str]:
    """What is wrong with how the package loads two files.

    Nothing where its code names neither a pattern of files nor an index, or where it takes one file alone: it then
    refuses a second one that is empty, too.

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
    """Make two files and an index of one; ``first`` is the part of the tensors that comes into the first."""
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
