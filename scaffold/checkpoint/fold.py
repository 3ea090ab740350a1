"""Folds numbered names: ``layers.0.norm`` to ``layers.27.norm`` become one row, ``layers.{0..27}.norm``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product
from math import prod

from scaffold.errors import ScaffoldError

# A number longer than this is not a layer index; with leading zeros it could not be unfolded.
_MAX_DIGITS = 9
# Numbers beyond this many levels are not folded.
_MAX_LEVELS = 8
# The most names a row may stand for.
_MAX_NAMES = 1_000_000
_RUN = rf"\d{{1,{_MAX_DIGITS}}}(?:\.\.\d{{1,{_MAX_DIGITS}}})?"
_NUMBERS = re.compile(rf"\{{({_RUN}(?:,{_RUN})*)\}}")

Template = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FoldedName:
    """Names that differ in numbers only, and in all combinations of these numbers.

    ``pattern`` is the row to show; ``names`` the folded names in order of their numbers.
    """

    pattern: str
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many names the row stands for."""
        return len(self.names)


def is_index(component: str) -> bool:
    """Tell whether a dotted name's component is a layer number: decimal digits without leading zeros."""
    return (
        component.isascii()
        and component.isdigit()
        and len(component) <= _MAX_DIGITS
        and (component == "0" or component[0] != "0")
    )


@lru_cache(maxsize=4096)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts ``layers.2`` before ``layers.10``."""
    return tuple((0, int(part), "") if is_index(part) else (1, 0, part) for part in name.split("."))


def number_set(numbers: Sequence[int]) -> str:
    """Return ``3`` for one number, ``{0..27}`` for a run, ``{0,2,5}`` otherwise; sorted input without repeats."""
    if len(numbers) == 1:
        return str(numbers[0])
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{{{numbers[0]}..{numbers[-1]}}}"
    parts: list[str] = []
    start = 0
    for position in range(1, len(numbers) + 1):
        if position < len(numbers) and numbers[position] == numbers[position - 1] + 1:
            continue
        run = numbers[start:position]
        parts.extend([f"{run[0]}..{run[-1]}"] if len(run) > 2 else [str(number) for number in run])
        start = position
    return "{" + ",".join(parts) + "}"


_Levels = tuple[tuple[int, ...], ...]


def _products(indices: set[tuple[int, ...]]) -> list[_Levels]:
    """Split a set of index tuples into Cartesian products, each as one sorted tuple of numbers per level."""
    if indices == {()}:
        return [()]
    below: dict[int, set[tuple[int, ...]]] = {}
    for head, *rest in indices:
        below.setdefault(head, set()).add(tuple(rest))
    alike: dict[tuple[_Levels, ...], list[int]] = {}
    for head in sorted(below):
        alike.setdefault(tuple(_products(below[head])), []).append(head)
    return [(tuple(heads), *levels) for products, heads in alike.items() for levels in products]


def _expand(levels: _Levels) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = [()]
    for numbers in levels:
        rows = [(*row, number) for row in rows for number in numbers]
    return rows


@lru_cache(maxsize=1 << 16)
def split_numbers(name: str) -> tuple[Template, tuple[int, ...]]:
    """Return a name's components with None for each number, and the numbers; at most eight levels count as numbers."""
    parts: list[str | None] = list(name.split("."))
    numbers: list[int] = []
    for place, part in enumerate(parts):
        if part is not None and is_index(part) and len(numbers) < _MAX_LEVELS:
            numbers.append(int(part))
            parts[place] = None
    return tuple(parts), tuple(numbers)


def join_numbers(template: Template, numbers: Sequence[int | str]) -> str:
    """Return the name of a template with its numbers, or their shown form, put in."""
    following = iter(numbers)
    return ".".join(str(next(following)) if part is None else part for part in template)


def fold(names: Iterable[str]) -> list[FoldedName]:
    """Fold numeric path components; each name ends in exactly one row.

    The result depends on the set of names alone: rows come in natural order of their first name. Names are folded
    together only where all combinations of the numbers occur, so a row never claims a name that is not there.
    """
    groups: dict[Template, set[tuple[int, ...]]] = {}
    for name in names:
        template, numbers = split_numbers(name)
        groups.setdefault(template, set()).add(numbers)
    rows = [
        FoldedName(
            pattern=join_numbers(template, [number_set(numbers) for numbers in levels]),
            names=tuple(join_numbers(template, row) for row in _expand(levels)),
        )
        for template, indices in groups.items()
        for levels in _products(indices)
    ]
    return sorted(rows, key=lambda row: natural_key(row.names[0]))


def unfold(pattern: str) -> Iterator[str]:
    """Return the names that a row of `fold` stands for; a name without numbers in braces stands for itself.

    Raises:
        ScaffoldError: more than a million.
    """
    texts = _NUMBERS.split(pattern)  # every second one is the content of braces
    levels = [[_run(part) for part in numbers.split(",")] for numbers in texts[1::2]]
    if prod(sum(map(len, runs)) for runs in levels) > _MAX_NAMES:
        raise ScaffoldError(f"{pattern[:200]!r} stands for more than {_MAX_NAMES:,} names")
    return (
        "".join(chain.from_iterable(zip(texts[::2], (*map(str, numbers), ""), strict=True)))
        for numbers in product(*(chain.from_iterable(runs) for runs in levels))
    )


def _run(part: str) -> range:
    first, _, last = part.partition("..")
    return range(int(first), int(last or first) + 1)
