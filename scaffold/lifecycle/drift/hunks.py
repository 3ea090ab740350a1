"""Rendered lines that differ between two renderings, and where they stand on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from scaffold.render.rendered import RenderedFile


@dataclass(frozen=True)
class Hunk:
    """Lines of one file that would be rendered differently.

    Attributes:
        file: path from the repository's root.
        line: the first line, from 1; where lines are only added, the line they follow, 0 at the top.
        before: the lines as they are rendered now, none where lines are only added.
        after: what they become.
        edited: whether a person has changed these lines; ``line`` is then the nearest unchanged line above.
    """

    file: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    edited: bool = False


def hunks(before: Mapping[str, RenderedFile], after: Mapping[str, RenderedFile]) -> tuple[Hunk, ...]:
    """Return the differences of two renderings, by file and line."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = _lines(before.get(path)), _lines(after.get(path))
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag != "equal":
                line = i1 + 1 if i2 > i1 else i1
                found.append(Hunk(path, line, tuple(old[i1:i2]), tuple(new[j1:j2])))
    return tuple(found)


def on_disk(found: tuple[Hunk, ...], rendered: Mapping[str, RenderedFile], disk: Mapping[str, str]) -> tuple[Hunk, ...]:
    """Return the hunks with the line numbers of the files on disk.

    Args:
        found: hunks of ``rendered``.
        rendered: what the package was rendered as.
        disk: text of each file that is there.
    """
    places: dict[str, list[int | None]] = {}
    moved = []
    for hunk in found:
        text = disk.get(hunk.file)
        if text is None:
            moved.append(replace(hunk, edited=True))
            continue
        if hunk.file not in places:
            places[hunk.file] = _places(_lines(rendered.get(hunk.file)), text.splitlines())
        moved.append(_moved(hunk, places[hunk.file]))
    return tuple(moved)


def _moved(hunk: Hunk, places: list[int | None]) -> Hunk:
    mine = places[hunk.line : hunk.line + max(1, len(hunk.before))]
    if mine and None not in mine:
        return replace(hunk, line=mine[0] or 0)
    above = [place for place in places[: hunk.line + 1] if place is not None]
    return replace(hunk, line=above[-1] if above else 0, edited=True)


def _places(rendered: list[str], disk: list[str]) -> list[int | None]:
    """Return the line on disk of each rendered line; index 0 stands for the top of the file."""
    places: list[int | None] = [0] + [None] * len(rendered)
    for block in SequenceMatcher(None, rendered, disk, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            places[block.a + offset + 1] = block.b + offset + 1
    return places


def _lines(file: RenderedFile | None) -> list[str]:
    if file is None:
        return []
    return [file.link_to] if file.link_to is not None else file.content.splitlines()
