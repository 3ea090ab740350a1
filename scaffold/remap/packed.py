"""Finds weights that are fused on one side and separate on the other, by upstream's table of packed parameters.

The table says which parts a packed parameter has and in which order. Where the checkpoint has the packed name and the
training module the parts, the key is split; the other way round, the keys are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaffold.checkpoint.fold import split_numbers
from scaffold.errors import ScaffoldError
from scaffold.remap.exchange import Stacked, dotted_endings, duplicates, shard_rank

Shape = tuple[int, ...]
Path = tuple[str, ...]
AXIS = 0


def packed_parts(stacked: Stacked) -> dict[Path, list[Path]]:
    """Return the parts of each packed parameter in upstream's order, as dotted components.

    Raises:
        ScaffoldError: its tables contradict each other.
    """
    shards: dict[tuple[str, str], set[str | int]] = {}
    for target, source, shard in stacked:
        shards.setdefault((target, source), set()).add(shard)
    for message in duplicates(shards):
        raise ScaffoldError(message, hint="give the rules by hand")
    parts: dict[Path, list[tuple[tuple[int, str], Path]]] = {}
    for (target, source), (shard,) in shards.items():
        parts.setdefault(_path(target), []).append((shard_rank(shard), _path(source)))
    return {packed: [path for _, path in sorted(found)] for packed, found in parts.items() if len(found) > 1}


def fuse(names: Mapping[str, Shape], others: Mapping[str, Shape], parts: Mapping[Path, Sequence[Path]]) -> Fused:
    """Return names with those fused that are fused on the other side.

    If the other side has both forms, as a checkpoint with a fused decoder and an unfused image encoder, only parts are
    fused whose whole it has in that shape, and whose parts it lacks.

    Args:
        names: shapes of the side that has parts.
        others: shapes of the side that may have them packed.
        parts: what ``packed_parts`` returned.
    """
    templates = {tuple(part or "0" for part in split_numbers(name)[0]) for name in others}
    shapes = dict(names)
    groups: dict[str, tuple[str, ...]] = {}
    namesakes: Namesakes | None = None
    for packed, paths in parts.items():
        if not any(_find(template, packed) is not None for template in templates):
            continue
        both = any(_find(template, path) is not None for template in templates for path in paths)
        namesakes = namesakes or (Namesakes(others) if both else None)
        for name in names:
            words = tuple(name.split("."))
            place = _find(words, paths[0])
            if place is None:
                continue
            before, after = words[:place], words[place + len(paths[0]) :]
            group = tuple(".".join((*before, *path, *after)) for path in paths)
            shape = _stacked([shapes.get(part) for part in group])
            whole = ".".join((*before, *packed, *after))
            if both and namesakes is not None and shape is not None:
                apart = all(namesakes.has(part, shapes[part]) for part in group)
                shape = shape if namesakes.has(whole, shape) and not apart else None
            if shape is not None:
                groups[whole] = group
                shapes[whole] = shape
                for part in group:
                    del shapes[part]
    return Fused(shapes, groups)


class Namesakes:
    """Names by their suffixes, with their shapes."""

    def __init__(self, names: Mapping[str, Shape]) -> None:
        self._names = names
        self._endings: dict[str, set[Shape]] = {}
        for name, shape in names.items():
            for ending in dotted_endings(name):
                self._endings.setdefault(ending, set()).add(shape)

    def has(self, name: str, shape: Shape) -> bool:
        """Whether a name of this shape ends with the given one, or the given one with it."""
        if shape in self._endings.get(name, ()):
            return True
        return any(self._names.get(ending) == shape for ending in dotted_endings(name))


class Fused:
    """Shapes after fusing, and the parts of each name that was made."""

    def __init__(self, shapes: dict[str, Shape], groups: dict[str, tuple[str, ...]]) -> None:
        self.shapes = shapes
        self.groups = groups

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names that a name stands for: its parts, or itself."""
        return self.groups.get(name, (name,))


def _path(text: str) -> Path:
    return tuple(word for word in text.split(".") if word)


def _find(words: Sequence[str], path: Path) -> int | None:
    for place in range(len(words) - len(path) + 1):
        if tuple(words[place : place + len(path)]) == path:
            return place
    return None


def _stacked(shapes: list[Shape | None]) -> Shape | None:
    known = [shape for shape in shapes if shape]
    if len(known) != len(shapes) or len({shape[1:] for shape in known}) != 1:
        return None
    return (sum(shape[0] for shape in known), *known[0][1:])
