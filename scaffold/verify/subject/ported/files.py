"""The tiny checkpoint's files: which tensor is which parameter, and how another like it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from scaffold.reading import copy_tree
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.checkpoint import CheckpointWriter, write_tensors


@dataclass(frozen=True)
class CopyingWriter(CheckpointWriter):
    """Writes changed weights beside the configuration of the tiny checkpoint.

    Attributes:
        source: the tiny checkpoint.
    """

    source: Path = Path()

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        tensors: dict[str, Tensor | None] = {self.names[n]: value for n, value in state.items() if n in self.names}
        copy_tree(self.source, folder, skip=("*.safetensors",))
        write_tensors(folder / self.file, {**tensors, **changes})


def writer(checkpoint: Path, state: dict[str, Tensor]) -> CopyingWriter:
    """Find the file of the denoiser's weights, and the key of each by its value.

    Raises:
        NotDrivableError: a parameter is in no file, or in several.
    """
    for file in sorted(checkpoint.rglob("*.safetensors")):
        with safe_open(file, framework="pt", device="cpu") as tensors:
            keys = {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
        names: dict[str, str] = {}
        for name, value in state.items():
            near = [key for key in keys if keys[key].shape == value.shape and torch.equal(keys[key].float(), value)]
            key = name if name in near else next((key for key in near if key not in names.values()), None)
            if key is not None:
                names[name] = key
        if len(names) == len(keys):
            return CopyingWriter(file.relative_to(checkpoint).as_posix(), names, {}, source=checkpoint)
    raise NotDrivableError("which tensors of the tiny checkpoint are the denoiser's was not found out")
