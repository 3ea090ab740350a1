"""Weights in a checkpoint of VeRL's trainer, read on a CPU, one tensor at a time, whatever they were sharded over."""

from __future__ import annotations

import importlib
import json
import os
import re
from typing import Any

import torch
from torch import Tensor

TRACKER = "latest_checkpointed_iteration.txt"
_LORA = re.compile(r"(.+)\.lora_(A|B)(?:\.[^.]+)?\.weight")


class TrainedWeights:
    """The parameters of a saved step, by their names in the training module.

    Args:
        folder: ``global_step_N``, its ``actor``, or the folder of all steps, of which the last is taken.

    Attributes:
        folder: that holds the shards.
        names: of parameters and buffers, without those of LoRA.
        adapted: names of the layers with LoRA.
        scaling: what LoRA's update is multiplied with.
        lora: ``r`` and ``lora_alpha`` of the adapter; None without one.

    Raises:
        FileNotFoundError, ValueError: it is no checkpoint of the trainer, or not a whole one.
    """

    def __init__(self, folder: str) -> None:
        self.folder = shards_of(folder)
        size = read_object(os.path.join(self.folder, "fsdp_config.json"))["world_size"]
        paths = [os.path.join(self.folder, f"model_world_size_{size}_rank_{rank}.pt") for rank in range(size)]
        self._ranks = [_loaded(path) for path in paths]
        self._names: dict[str, str] = {}
        self._matrices: dict[str, dict[str, str]] = {}
        for saved in self._ranks[0]:
            name = saved.replace("_fsdp_wrapped_module.", "").replace(".base_layer.", ".")
            matrix = _LORA.fullmatch(name)
            if matrix is not None:
                self._matrices.setdefault(matrix[1], {})[matrix[2]] = saved
            elif ".lora_" in name:
                raise ValueError(f"{self.folder}: {name} is of an adapter that is not plain LoRA")
            else:
                self._names[name] = saved
        meta = os.path.join(self.folder, "lora_train_meta.json")
        self.lora = read_object(meta) if self._matrices else None
        self.scaling = self.lora["lora_alpha"] / self.lora["r"] if self.lora else 0.0
        half = [layer for layer, sides in self._matrices.items() if len(sides) != 2]
        if half:
            raise ValueError(f"{self.folder}: LoRA on {half[0]} has one matrix of two")

    @property
    def names(self) -> set[str]:
        return set(self._names)

    @property
    def adapted(self) -> set[str]:
        return set(self._matrices)

    def tensor(self, name: str) -> Tensor:
        """A parameter, whole; under LoRA the base's."""
        return self._full(self._names[name])

    def matrices(self, layer: str) -> tuple[Tensor, Tensor]:
        """LoRA's ``A (r, in)`` and ``B (out, r)`` of a layer."""
        sides = self._matrices[layer]
        return self._full(sides["A"]), self._full(sides["B"])

    def _full(self, saved: str) -> Tensor:
        first = self._ranks[0][saved]
        spec = getattr(first, "_spec", None)
        if spec is None:
            if not isinstance(first, Tensor):
                raise ValueError(f"{saved} is saved as {type(first).__name__}, which cannot be put together here")
            return first
        return self._gathered(saved, spec.mesh.mesh, tuple(spec.placements))

    def _gathered(self, saved: str, ranks: Tensor, placements: tuple[Any, ...]) -> Tensor:
        """Put the shards of the ranks together, the first dimension of their mesh first."""
        if not placements:
            local: Tensor = self._ranks[int(ranks)][saved]._local_tensor
            return local
        if placements[0].is_replicate():
            return self._gathered(saved, ranks[0], placements[1:])
        if not placements[0].is_shard():
            raise ValueError(f"{saved} is saved in parts that have to be added up")
        return torch.cat([self._gathered(saved, part, placements[1:]) for part in ranks], dim=placements[0].dim)


def shards_of(folder: str) -> str:
    """The folder with the shards of a step's weights.

    Raises:
        FileNotFoundError: there is none.
    """
    tracker = os.path.join(folder, TRACKER)
    if os.path.isfile(tracker):
        with open(tracker, encoding="ascii", errors="replace") as file:
            step = file.read().strip()
        if not step.isdigit():
            raise FileNotFoundError(f"{tracker} names no step: name the folder of one, such as global_step_30")
        folder = os.path.join(folder, f"global_step_{step}")
    for place in (folder, os.path.join(folder, "actor")):
        if os.path.isfile(os.path.join(place, "fsdp_config.json")):
            return place
    raise FileNotFoundError(f"{folder} is no checkpoint of the trainer: it has no actor/fsdp_config.json")


def read_object(path: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing: the checkpoint is incomplete")
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no object")
    return content


def _loaded(path: str) -> dict[str, Any]:
    importlib.import_module("torch.distributed.tensor")  # says which of its classes may be loaded
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing: the checkpoint is incomplete")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        line = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read: {line}") from None
    return state
