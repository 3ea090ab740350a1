"""The index of a sharded checkpoint, checked against the shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scaffold.checkpoint.headers import TensorHeader
from scaffold.checkpoint.json_bounds import parse_table
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

SUFFIX = ".safetensors.index.json"
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
