"""Places in few words: each file under the shortest name that is its own, the lines of a file together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.inspect.facts import Evidence

SHOWN = 2


def short_names(files: Iterable[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has, in the order of the paths."""
    paths = list(dict.fromkeys(files))
    names = {}
    for path in paths:
        parts = path.split("/")
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if not any(other != path and f"/{other}".endswith(f"/{name}") for other in paths):
                break
        names[path] = name
    return names


def places(evidence: Sequence[Evidence], names: dict[str, str]) -> list[str]:
    """One text a file, such as ``pipeline.py:12, 40``, of the first places; the last says how many are left out."""
    lines: dict[str, list[int]] = {}
    for place in evidence[:SHOWN]:
        lines.setdefault(names[place.file], []).append(place.line)
    texts = [f"{name}:{', '.join(map(str, dict.fromkeys(numbers)))}" for name, numbers in lines.items()]
    if len(evidence) > SHOWN:
        texts[-1] += f" (+{len(evidence) - SHOWN})"
    return texts
