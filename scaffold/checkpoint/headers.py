"""What is known of a checkpoint without its data: tensors, files and the configs beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from scaffold.checkpoint.dtypes import DTYPE_BITS
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

# Of a file's name: the dtype of its weights, or that they are an average over training.
_VARIANT = re.compile(r"\.(fp16|bf16|fp32|fp8|ema|non_ema)(?=[.-])")


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor: its key, its dtype as safetensors spells it, its shape and the file that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One weight file: its name relative to the checkpoint, the tensors in it and their bytes without the header."""

    name: str
    tensors: int
    data_bytes: int


@dataclass(frozen=True)
class CheckpointHeaders:
    """Everything read from a checkpoint.

    ``entries`` keeps each file's tensors in file order. ``configs`` maps a JSON file's name to its object, ``skipped``
    the name of a JSON file that was not read to the reason. ``source`` is a label, never an absolute path.
    """

    source: str
    files: tuple[CheckpointFile, ...]
    entries: tuple[TensorHeader, ...]
    configs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def tensors(self) -> Mapping[str, TensorHeader]:
        """Return the tensors by key.

        Raises:
            ScaffoldError: two files hold the same key, as a folder with both training and EMA weights does.
        """
        table: dict[str, TensorHeader] = {}
        for entry in self.entries:
            other = table.setdefault(entry.name, entry)
            if other is not entry:
                plain = {_VARIANT.sub("", file) for file in (other.file, entry.file)}
                why = ", being variants of the same weights" if len(plain) == 1 else ""
                raise ScaffoldError(
                    f"{self.source}: {other.file} and {entry.file} both hold {quoted(entry.name)}{why}",
                    hint="name the one file to read instead of the folder",
                )
        return table

    @property
    def total_bytes(self) -> int:
        """Bytes of tensor data in all files, headers left out."""
        return sum(file.data_bytes for file in self.files)

    def select(self, files: Iterable[str]) -> CheckpointHeaders:
        """Return the part that the named weight files hold; configs stay.

        Raises:
            ScaffoldError: a name is none of ``files``.
        """
        wanted = set(files)
        known = {file.name for file in self.files}
        for name in sorted(wanted - known):
            raise ScaffoldError(f"{self.source} has no weight file {name}", hint=f"it has {', '.join(sorted(known))}")
        return replace(
            self,
            files=tuple(file for file in self.files if file.name in wanted),
            entries=tuple(entry for entry in self.entries if entry.file in wanted),
        )
