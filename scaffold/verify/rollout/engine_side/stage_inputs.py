"""What the stages before a pipeline hand on to it, made up in the shapes that ``scaffold.toml`` gives."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

SHAPE, PROMPT = "shape", "prompt"


class StageInputs:
    """Files of stage inputs, one for each prompt, as the package writes and reads them.

    Args:
        package: dotted name of the package.
        form: ``stages`` of ``[verify]``: tables of what is handed on; ``{shape = […]}`` is a tensor, in whose shape
            ``"prompt"`` stands for the number of the prompt's ids.
        folder: where the files go.
        dtype: of the tensors.
    """

    def __init__(self, package: str, form: Mapping[str, Any], folder: Path, dtype: torch.dtype) -> None:
        self._own: Any = importlib.import_module(f"{package}.stage_inputs")
        self._form, self._folder, self._dtype = form, folder, dtype

    def sampling(self, ids: Sequence[int]) -> dict[str, str]:
        """What the agent loop puts among the extra arguments of a request; another file for each prompt."""
        seed = zlib.crc32(" ".join(map(str, ids)).encode())
        path = self._folder / f"{seed:08x}.safetensors"
        if not path.exists():
            generator = torch.Generator().manual_seed(seed)
            self._own.write_stage_inputs(str(path), self._made(self._form, len(ids), generator))
        return {self._own.STAGE_INPUTS: str(path)}

    def _made(self, form: Any, length: int, generator: torch.Generator) -> Any:
        if isinstance(form, Mapping):
            if form.keys() == {SHAPE}:
                sizes = [length if size == PROMPT else int(size) for size in form[SHAPE]]
                return torch.randn(sizes, generator=generator).to(self._dtype)
            return {name: self._made(value, length, generator) for name, value in form.items()}
        return form
