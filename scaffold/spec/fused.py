"""Checkpoints that keep projections fused: their headers as if each part had a tensor of its own.

Upstream's table of packed parameters says what a fused tensor holds and in which order, the configuration how long
queries, keys and values are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaffold.checkpoint import CheckpointHeaders, TensorHeader
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap import SourceRules
from scaffold.spec.configuration import positive_int

_ATTENTION = ("q", "k", "v")
Path = tuple[str, ...]


def unpacked(headers: CheckpointHeaders, source: SourceRules, config: Mapping[str, Any]) -> CheckpointHeaders:
    """Return headers with each tensor that upstream packs as well replaced by its parts.

    Args:
        headers: the checkpoint.
        source: what upstream's loader says.
        config: the language model's configuration; its heads decide the lengths of queries, keys and values.

    Raises:
        ScaffoldError: a fused tensor's rows do not go into its parts.
    """
    tables = _tables(source)
    entries: list[TensorHeader] = []
    for entry in headers.entries:
        found = _packed(entry.name, tables)
        if found is None or not entry.shape:
            entries.append(entry)
            continue
        before, parts, after = found
        lengths = _lengths(entry, [shard for shard, _ in parts], config)
        for (_, path), length in zip(parts, lengths, strict=True):
            entries.append(replace(entry, name=".".join((*before, *path, *after)), shape=(length, *entry.shape[1:])))
    known = {entry.name for entry in headers.entries}
    made = [entry.name for entry in entries if entry.name not in known]
    if not made or len({entry.name for entry in entries}) != len(entries):
        return headers
    return replace(headers, entries=tuple(entries))


def _tables(source: SourceRules) -> list[tuple[Path, list[tuple[str | int, Path]]]]:
    """Return the parts of each packed parameter by shard, the longest name first; only whole sets of shards."""
    packed: dict[Path, dict[str | int, Path]] = {}
    for target, part, shard in source.stacked:
        packed.setdefault(_words(target), {})[shard] = _words(part)
    found = []
    for path, shards in packed.items():
        order: Sequence[str | int] = _ATTENTION if set(shards) == set(_ATTENTION) else range(len(shards))
        if len(shards) > 1 and set(order) == set(shards):
            found.append((path, [(shard, shards[shard]) for shard in order]))
    return sorted(found, key=lambda row: -len(row[0]))


def _packed(
    name: str, tables: Sequence[tuple[Path, list[tuple[str | int, Path]]]]
) -> tuple[Path, list[tuple[str | int, Path]], Path] | None:
    words = _words(name)
    for path, parts in tables:
        for place in range(len(words) - len(path)):
            if words[place : place + len(path)] == path:
                return words[:place], parts, words[place + len(path) :]
    return None


def _lengths(entry: TensorHeader, shards: Sequence[str | int], config: Mapping[str, Any]) -> list[int]:
    weights = [1] * len(shards)
    if tuple(shards) == _ATTENTION:
        heads = positive_int(config, "num_attention_heads", "the language model's configuration")
        groups = positive_int(config, "num_key_value_heads", "the language model's configuration")
        weights = [heads, groups, groups]
    rows, rest = divmod(entry.shape[0], sum(weights))
    if rest:
        shown = " + ".join(map(str, weights))
        raise ScaffoldError(f"{quoted(entry.name)} has {entry.shape[0]} rows, which do not go into {shown} equal parts")
    return [rows * weight for weight in weights]


def _words(text: str) -> Path:
    return tuple(text.strip(".").split("."))
