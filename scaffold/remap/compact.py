"""Compacts single assignments into rules: the shortest equivalent prefixes, with numbers as placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scaffold.checkpoint.fold import is_index, natural_key
from scaffold.remap.pattern import literal

# One for each level of numbers that folding tells apart.
PLACEHOLDERS = ("{n}", "{m}", "{k}", "{j}", "{i}", "{h}", "{g}", "{f}")
# Deeper components count as one, so that hostile names cannot exhaust the stack.
_MAX_DEPTH = 64

_Split = Sequence[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the tree of keys: the pattern components that lead there and the wanted ``keys`` below it.

    ``whole`` says that the keys end there, so the pattern is not a prefix.
    """

    parts: tuple[str, ...]
    keys: tuple[str, ...]
    whole: bool


def pattern_text(parts: Sequence[str], whole: bool) -> str:
    """Return the pattern of these components."""
    return ".".join(parts) + ("" if whole or not parts else ".")


@dataclass(frozen=True, slots=True)
class Cover:
    """Finds the highest places of the key tree below which every key is wanted, apart from tolerated ones.

    Args:
        wanted: whether a key is to be matched.
        tolerated: whether a place may match a key although it is not wanted, because another rule comes first.
        least: the fewest components of a place.
    """

    wanted: Callable[[str], bool]
    tolerated: Callable[[str], bool] = lambda key: False
    least: int = 0

    def nodes(self, start: tuple[str, ...], keys: Iterable[str]) -> list[Node]:
        """Return places that together match each wanted key once, in natural order.

        Args:
            start: components of the pattern below which to look.
            keys: all keys of the checkpoint below ``start``.
        """
        split = [(key, tuple(key.split(".", _MAX_DEPTH))) for key in sorted(keys, key=natural_key)]
        return list(self._descend(start, split))

    def _descend(self, parts: tuple[str, ...], keys: _Split) -> Iterator[Node]:
        hits = tuple(key for key, _ in keys if self.wanted(key))
        misses = [key for key, _ in keys if not self.wanted(key)]
        if not hits:
            return
        depth = len(parts)
        if depth >= self.least and all(map(self.tolerated, misses)) and len(hits) >= 2 * len(misses):
            if all(len(split) > depth for _, split in keys):
                yield Node(parts, hits, whole=False)
                return
            if not misses and all(len(split) == depth for _, split in keys):
                yield Node(parts, hits, whole=True)
                return
        ending = [(key, split) for key, split in keys if len(split) == depth]
        if ending and len(ending) < len(keys):
            yield from self._descend(parts, ending)
        groups: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        numbered: list[tuple[str, tuple[str, ...]]] = []
        for key, split in keys:
            if len(split) > depth:
                part = split[depth]
                (numbered if is_index(part) else groups.setdefault(literal(part), [])).append((key, split))
        if numbered:
            yield from self._numbered(parts, numbered)
        for part in sorted(groups):
            yield from self._descend((*parts, part), groups[part])

    def _numbered(self, parts: tuple[str, ...], keys: _Split) -> Iterator[Node]:
        """Cover keys that go on with a number: by a placeholder where all numbers agree, else number by number."""
        used = sum(part in PLACEHOLDERS for part in parts)
        values: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for key, split in keys:
            values.setdefault(split[len(parts)], []).append((key, split))
        if used < len(PLACEHOLDERS) and len(values) > 1:
            nodes = list(self._descend((*parts, PLACEHOLDERS[used]), keys))
            if sum(len(node.keys) for node in nodes) == sum(self.wanted(key) for key, _ in keys):
                yield from nodes
                return
        for value in sorted(values, key=int):
            yield from self._descend((*parts, value), values[value])
