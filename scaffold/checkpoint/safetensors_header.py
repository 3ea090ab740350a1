"""The header of one safetensors file: eight bytes of length, then JSON, checked in full.

The safetensors library silently keeps the last of two equal keys and reads only local files, so the header is parsed
here, for local and remote files alike; a test compares the verdicts with the library's.
"""

from __future__ import annotations

from typing import Any

from scaffold.checkpoint.headers import DTYPE_BITS, TensorHeader
from scaffold.checkpoint.json_bounds import parse_table
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
_MAX_RANK = 64
_MAX_BITS = 1 << 63
_METADATA = "__metadata__"

# Files found instead of weights after a failed download, by their first bytes in lower case.
_AGAIN = "download the file again, as with `hf download`"
_NO_WEIGHTS = (
    (b"<!doctyp", "an HTML page", _AGAIN),
    (b"<html", "an HTML page", _AGAIN),
    (b"<?xml", "an XML page", _AGAIN),
    (b'{"error"', "the error message of a server", _AGAIN),
    (b"pk\3\4", "a zip archive, as torch.save writes", "convert it to safetensors"),
    (b"gguf", "a GGUF file", "give the safetensors that it was made of"),
)


def header_length(prefix: bytes, file_bytes: int, label: str) -> int:
    """Return how many bytes of JSON follow the first eight.

    Args:
        prefix: the file's first eight bytes, or all of a shorter file.
        file_bytes: size of the whole file.
        label: the file's name for errors.

    Raises:
        ScaffoldError: no safetensors file, cut short, or a header over 100 MB.
    """
    if prefix.startswith(b"version "):
        raise ScaffoldError(f"{label} is a Git LFS pointer, not the weights", hint="fetch it with git lfs pull")
    for begin, kind, hint in _NO_WEIGHTS:
        if prefix.lower().startswith(begin):
            raise ScaffoldError(f"{label} is {kind}, not the weights", hint=hint)
    if len(prefix) < LENGTH_BYTES:
        raise ScaffoldError(f"{label} has {file_bytes} bytes and is not a safetensors file")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise ScaffoldError(f"{label} is not a safetensors file: its header claims {length} bytes, over 100 MB")
    if length > file_bytes - LENGTH_BYTES:
        raise ScaffoldError(
            f"{label} is cut short or no safetensors file: its header claims {length} bytes, the file has {file_bytes}"
        )
    return length


def parse_header(raw: bytes, data_bytes: int, label: str, file: str) -> list[TensorHeader]:
    """Return the tensors of one file in header order.

    Args:
        raw: the header's JSON.
        data_bytes: how many bytes follow the header.
        label: the file's name for errors.
        file: the file's name in the result.

    Raises:
        ScaffoldError: the header is ambiguous: two readers could disagree on the file's content.
    """
    table = parse_table(raw, label, entries_per_object=8, spare_entries=10_000)
    metadata = table.pop(_METADATA, None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise ScaffoldError(f"{label} has {_METADATA} that is not a table of text")
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    tensors: list[TensorHeader] = []
    ranges: list[tuple[int, int, str]] = []
    for name, entry in table.items():
        dtype, shape, begin, end = _entry(name, entry, label)
        if end > data_bytes:
            raise ScaffoldError(
                f"{label}: tensor {quoted(name)} ends at byte {end} of the data, the file holds {data_bytes}"
            )
        tensors.append(TensorHeader(name, dtype, shapes.setdefault(shape, shape), file))
        ranges.append((begin, end, name))
    _check_cover(ranges, data_bytes, label)
    return tensors


def _entry(name: str, entry: Any, label: str) -> tuple[str, tuple[int, ...], int, int]:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ScaffoldError(f"{label}: key {quoted(name)} is not text (a lone surrogate)") from None
    if type(entry) is not dict:
        raise ScaffoldError(f"{label}: tensor {quoted(name)} is described by no object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise ScaffoldError(f"{label}: tensor {quoted(name)} has the unknown dtype {quoted(dtype)}")
    if type(shape) is not list or any(type(size) is not int for size in shape) or len(shape) > _MAX_RANK:
        raise ScaffoldError(f"{label}: tensor {quoted(name)} has no shape of up to {_MAX_RANK} whole numbers")
    if type(offsets) is not list or len(offsets) != 2 or any(type(offset) is not int for offset in offsets):
        raise ScaffoldError(f"{label}: tensor {quoted(name)} has no data_offsets of two whole numbers")
    bits = DTYPE_BITS[dtype]
    for size in shape:
        bits *= size
        if bits >= _MAX_BITS:
            raise ScaffoldError(f"{label}: tensor {quoted(name)} has a shape whose size does not fit 64 bits")
    begin: int = offsets[0]
    end: int = offsets[1]
    if end < begin or bits != 8 * (end - begin):
        raise ScaffoldError(
            f"{label}: tensor {quoted(name)} is {dtype} {quoted(shape)}, which takes {bits} bits, "
            f"but its range {begin} to {end} has {8 * (end - begin)}"
        )
    return dtype, tuple(shape), begin, end


def _check_cover(ranges: list[tuple[int, int, str]], data_bytes: int, label: str) -> None:
    """Require the ranges to follow one another without overlap or gap from the first byte to the last."""
    ranges.sort()
    position = 0
    previous = ""
    for begin, end, name in ranges:
        if begin < position:
            raise ScaffoldError(f"{label}: the ranges of {quoted(previous)} and {quoted(name)} overlap")
        if begin > position:
            raise ScaffoldError(f"{label}: {begin - position} bytes before {quoted(name)} belong to no tensor")
        position, previous = end, name
    if position != data_bytes:
        raise ScaffoldError(f"{label}: the last {data_bytes - position} bytes belong to no tensor")
