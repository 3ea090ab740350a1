"""Finds which prefix of the checkpoint could fill which prefix of the training module.

A tower is a pair of prefixes below which names continue alike with equal shapes: ``language_model.model.`` and an empty
one, say. It is found from names and shapes alone; all work is on templates, names without their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scaffold.checkpoint.fold import Template, join_numbers, split_numbers

Shape = tuple[int, ...]
Numbers = tuple[int, ...]

# If the numbers of two prefixes do not correspond, at most this many combinations are tried.
_MAX_FIXED = 64


@dataclass(frozen=True, slots=True)
class Tower:
    """A source and a target prefix.

    ``fixed`` is None where the numbers of both prefixes correspond in order, else the fixed numbers of each side.
    """

    source: Template
    target: Template
    fixed: tuple[Numbers, Numbers] | None = None

    @property
    def is_identity(self) -> bool:
        """Whether names stay as they are."""
        return not self.source and not self.target

    def numbers(self, numbers: Numbers) -> Numbers | None:
        """Return the numbers of the checkpoint key for those of a parameter below the target prefix."""
        if self.fixed is None:
            return numbers
        source, target = self.fixed
        return source + numbers[len(target) :] if numbers[: len(target)] == target else None


def candidate_towers(keys: Mapping[str, Shape], parameters: Mapping[str, Shape]) -> dict[Tower, dict[str, str]]:
    """Return each tower that fills a parameter, with the checkpoint key of every parameter it fills.

    A parameter's whole name, or an ending of two or more worded components, found at the end of a key makes a tower. A
    tower that fills a single kind of parameter is a coincidence unless names are unchanged or it fills all of them.
    """
    wanted = _by_template(parameters)
    given = _by_template(keys)
    towers: dict[Tower, dict[str, str]] = {}
    for tower in _discover(wanted, given):
        if tower in towers:
            continue
        depth = len(tower.target)
        filled: dict[str, str] = {}
        kinds = 0
        for template, all_numbers in wanted.items():
            source = tower.source + template[depth:]
            if template[:depth] != tower.target or source not in given:
                continue
            before = len(filled)
            for numbers in all_numbers:
                mapped = tower.numbers(numbers)
                key = None if mapped is None else join_numbers(source, mapped)
                name = join_numbers(template, numbers)
                if key is not None and keys.get(key) == parameters[name]:
                    filled[name] = key
            kinds += len(filled) > before
        towers[tower] = filled if kinds > 1 or tower.is_identity or len(filled) == len(parameters) else {}
    return {tower: filled for tower, filled in towers.items() if filled}


def _by_template(names: Mapping[str, Shape]) -> dict[Template, list[Numbers]]:
    table: dict[Template, list[Numbers]] = {}
    for name in names:
        template, numbers = split_numbers(name)
        table.setdefault(template, []).append(numbers)
    return table


def _discover(wanted: Mapping[Template, list[Numbers]], given: Mapping[Template, list[Numbers]]) -> Iterator[Tower]:
    endings: dict[Template, list[Template]] = {}
    for template in wanted:
        endings[template] = []
        for start in range(1, len(template) - 1):
            if sum(part is not None for part in template[start:]) > 1:
                endings.setdefault(template[start:], [])
    lengths = {len(ending) for ending in endings}
    for template in given:
        for length in lengths:
            if length <= len(template) and template[-length:] in endings:
                endings[template[-length:]].append(template)
    for template, numbers in wanted.items():
        for start in range(max(1, len(template) - 1)):
            ending = template[start:]
            for key in endings.get(ending, ()):
                source, target = key[: len(key) - len(ending)], template[:start]
                if source and target and source[-1] == target[-1]:
                    continue
                if source.count(None) == target.count(None):
                    yield Tower(source, target)
                else:
                    sources = {row[: source.count(None)] for row in given[key]}
                    targets = {row[: target.count(None)] for row in numbers}
                    if len(sources) * len(targets) <= _MAX_FIXED:
                        yield from (Tower(source, target, (s, t)) for s in sorted(sources) for t in sorted(targets))
