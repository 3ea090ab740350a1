"""What is known of a checkpoint without its data: tensors, files, the configs beside them, and the index of shards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from scaffold.checkpoint.json_bounds import parse_table
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "C64": 64,
}


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


INDEX_SUFFIX = ".safetensors.index.json"
MAX_INDEX_BYTES = 64_000_000
_MAX_KEYS = 1_000_000


def parse_index(raw: bytes, label: str) -> dict[str, str]:
    """Return an index's ``weight_map``: the shard of each tensor, shards relative to the index's folder.

    Raises:
        ScaffoldError: not JSON, duplicate keys, or no map of text to text.
    """
    weight_map = parse_table(raw, label, entries_per_object=0, spare_entries=_MAX_KEYS).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ScaffoldError(f"{label} has no weight_map")
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            raise ScaffoldError(f"{label} maps {quoted(name)} to no file name but {quoted(shard)}")
        if not shard.endswith(".safetensors"):
            raise ScaffoldError(f"{label} maps {quoted(name)} to {quoted(shard)}, which is not a .safetensors file")
    return weight_map


def check_index(weight_map: Mapping[str, str], entries: Iterable[TensorHeader], label: str) -> None:
    """Require that the shards hold exactly the tensors of the index.

    Args:
        weight_map: shard of each tensor, named as in ``entries``.
        entries: the tensors of all these shards.
        label: the index's name for errors.

    Raises:
        ScaffoldError: a tensor is in another shard, in no shard, or in a shard only.
    """
    found: dict[str, str] = {}
    for entry in entries:
        expected = weight_map.get(entry.name)
        if expected is None:
            raise ScaffoldError(f"{label}: {entry.file} holds {quoted(entry.name)}, which the index does not name")
        if expected != entry.file:
            raise ScaffoldError(
                f"{label}: {entry.file} holds {quoted(entry.name)}, which the index places in {quoted(expected)}"
            )
        found[entry.name] = entry.file
    for name, shard in weight_map.items():
        if name not in found:
            raise ScaffoldError(f"{label} places {quoted(name)} in {quoted(shard)}, which does not hold it")
