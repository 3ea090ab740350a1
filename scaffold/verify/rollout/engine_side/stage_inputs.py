"""What the stages before a pipeline hand on to it, made up in the shapes that ``scaffold.toml`` gives."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

SHAPE, TOKENS, LENGTH, PROMPT = "shape", "tokens", "length", "prompt"


class StageInputs:
    """Files of stage inputs, one for each prompt, as the package writes and reads them.

    Args:
        package: dotted name of the package.
        form: ``stages`` of ``[verify]``: tables of what is handed on; ``{shape = […]}`` is a tensor and
            ``{length = …}`` a number, where ``"prompt"`` stands for the number of the prompt's ids and ``"prompt + 4"``
            for four more; ``{tokens = […]}`` is a list of ids, where ``"prompt"`` stands for the prompt's.
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
            self._own.write_stage_inputs(str(path), self._made(self._form, ids, generator))
        return {self._own.STAGE_INPUTS: str(path)}

    def _made(self, form: Any, ids: Sequence[int], generator: torch.Generator) -> Any:
        if not isinstance(form, Mapping):
            return form
        if form.keys() == {SHAPE}:
            sizes = [_number(size, len(ids)) for size in form[SHAPE]]
            return torch.randn(sizes, generator=generator).to(self._dtype)
        if form.keys() == {LENGTH}:
            return _number(form[LENGTH], len(ids))
        if form.keys() == {TOKENS}:
            return [token for part in form[TOKENS] for token in (ids if part == PROMPT else [int(part)])]
        return {name: self._made(value, ids, generator) for name, value in form.items()}


def _number(text: int | str, length: int) -> int:
    """A size: a number, the prompt's length, or a sum of such."""
    return sum(length if part.strip() == PROMPT else int(part) for part in str(text).split("+"))
