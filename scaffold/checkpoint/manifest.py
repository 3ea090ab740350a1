"""Packaged manifests: the names, dtypes and shapes of a published checkpoint, without its files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from scaffold.checkpoint.fold import fold, unfold
from scaffold.checkpoint.headers import DTYPE_BITS, CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.checkpoint.json_bounds import parse_table
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_bytes

MAX_MANIFEST_BYTES = 32_000_000


def read_manifest(path: str | Path, *, inside: Path | None = None) -> CheckpointHeaders:
    """Return a manifest's tensors as headers of a checkpoint.

    A manifest is a JSON object of ``name: {"dtype": …, "shape": […]}`` in a file called ``<model>.<file>.json``;
    ``<file>.safetensors`` is the weight file it stands for. ``layers.{0..27}.norm`` names a tensor of each number.

    Args:
        path: the file.
        inside: the tree that it belongs to.

    Raises:
        ScaffoldError: no such file, or not of this form.
    """
    path = Path(path)
    try:
        raw = read_bytes(path, MAX_MANIFEST_BYTES, inside=inside)
    except OSError as error:
        raise ScaffoldError(f"cannot read the manifest {path}: {error.strerror}") from None
    model, _, weights = path.stem.rpartition(".")
    file = f"{weights}.safetensors"
    entries = []
    for name, entry in parse_table(raw, str(path), entries_per_object=4, spare_entries=100).items():
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if (
            not isinstance(dtype, str)
            or dtype not in DTYPE_BITS
            or not isinstance(shape, list)
            or any(type(size) is not int for size in shape)
        ):
            raise ScaffoldError(f"{path}: {quoted(name)} has no dtype and shape")
        entries += [TensorHeader(each, dtype, tuple(shape), file) for each in unfold(name)]
    entries.sort(key=lambda entry: entry.name)
    if not entries:
        raise ScaffoldError(f"the manifest {path} holds no tensors")
    size = sum(entry.nbytes for entry in entries)
    return CheckpointHeaders(
        source=f"manifest {model or weights}",
        files=(CheckpointFile(file, len(entries), size),),
        entries=tuple(entries),
    )


def manifest_text(tensors: Iterable[TensorHeader]) -> str:
    """Return a manifest of these tensors, one line for names that differ only in their layer number."""
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.dtype, tensor.shape), []).append(tensor.name)
    rows = sorted((row.pattern, *kind) for kind, names in alike.items() for row in fold(names))
    lines = (f' {json.dumps(name)}: {{"dtype": "{dtype}", "shape": {list(shape)}}}' for name, dtype, shape in rows)
    return "{\n" + ",\n".join(lines) + "\n}\n"
