"""Assigns checkpoint keys to parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher

from scaffold.checkpoint.fold import join_numbers, natural_key, split_numbers
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.towers import Tower, candidate_towers

Shapes = Mapping[str, tuple[int, ...]]
Chosen = dict[str, tuple[Tower, str]]


def choose(
    shapes: Shapes, keys: Shapes, upstream_name: Callable[[str], str], partial: bool = False
) -> tuple[Chosen, dict[str, str]]:
    """Return the tower and parameter of each key that a prefix leads to, and the parameter of each other one.

    Args:
        shapes: the parameters to fill.
        keys: the keys that may fill them.
        upstream_name: maps a key to its name in upstream's loader; unchanged without a rule.
        partial: omit parameters that no key fills, and accept a key of the right name but another shape.

    Raises:
        ScaffoldError: a parameter that no key, or more than one, could fill.
    """
    chosen, unfilled = _by_prefix(candidate_towers(keys, shapes), shapes)
    bridged: dict[str, str] = {}
    if unfilled:
        aliases: dict[str, list[str]] = {}
        for name in keys:
            if name not in chosen:
                aliases.setdefault(upstream_name(name), []).append(name)
        renamed = {alias: keys[names[0]] for alias, names in aliases.items() if names != [alias] and len(names) == 1}
        left = {name: shapes[name] for name in unfilled}
        found, unfilled = _by_prefix(candidate_towers(renamed, left), left) if renamed else ({}, unfilled)
        bridged = {aliases[alias][0]: target for alias, (_, target) in found.items()}
    if unfilled and not partial:
        raise _unfilled(unfilled, shapes, keys, chosen)
    for name in unfilled:
        for tower, key in _expected(name, chosen):
            if key in keys and key not in chosen and key not in bridged:
                chosen[key] = (tower, name)
                break
    return chosen, bridged


def _by_prefix(towers: Mapping[Tower, Mapping[str, str]], shapes: Shapes) -> tuple[Chosen, list[str]]:
    """Return the assignments and the unfilled parameters.

    The tower that fills the most parameters decides. A key it assigns is no candidate for another parameter of a
    smaller tower: that parameter's own key is missing, and its twin's is not a substitute.
    """
    chosen: Chosen = {}
    unfilled = []
    best: dict[str, list[Tower]] = {}
    for tower, filled in towers.items():
        for name in filled:
            rivals = best.setdefault(name, [tower])
            if len(filled) > len(towers[rivals[0]]):
                best[name] = [tower]
            elif len(filled) == len(towers[rivals[0]]) and tower not in rivals:
                rivals.append(tower)
    for name in shapes:
        sources = {towers[tower][name]: tower for tower in best.get(name, ())}
        if not sources:
            unfilled.append(name)
            continue
        if len(sources) > 1:
            first, second = sorted(sources)[:2]
            raise ScaffoldError(
                f"the parameter {quoted(name)} could be {quoted(first)} or {quoted(second)} of the checkpoint",
                hint="give a rule for it, or one weight file instead of the folder",
            )
        ((source, tower),) = sources.items()
        if source in chosen:
            other, rival = chosen[source]
            if len(towers[other]) == len(towers[tower]):
                raise ScaffoldError(f"{quoted(source)} could fill {quoted(rival)} and {quoted(name)}")
            if len(towers[other]) > len(towers[tower]):
                unfilled.append(name)
                continue
            unfilled.append(rival)
        chosen[source] = (tower, name)
    return chosen, unfilled


def _expected(name: str, chosen: Chosen) -> list[tuple[Tower, str]]:
    """Return the keys expected for a parameter from the names of the others, the likeliest first."""
    template, numbers = split_numbers(name)
    counts: dict[Tower, int] = {}
    for tower, _ in chosen.values():
        counts[tower] = counts.get(tower, 0) + 1
    found = []
    for tower in sorted(counts, key=lambda tower: -counts[tower]):
        depth = len(tower.target)
        mapped = tower.numbers(numbers) if template[:depth] == tower.target else None
        if mapped is not None:
            found.append((tower, join_numbers(tower.source + template[depth:], mapped)))
    return found


def _unfilled(names: list[str], shapes: Shapes, keys: Shapes, chosen: Chosen) -> ScaffoldError:
    name = min(names, key=natural_key)
    count = f"{len(names)} of {len(shapes)} parameters are filled by no key of the checkpoint, first"
    expected = None
    for _, key in _expected(name, chosen):
        if key in keys and keys[key] != shapes[name]:
            return ScaffoldError(f"{count} {quoted(name)}: it has shape {list(shapes[name])}, {key} {list(keys[key])}")
        expected = expected or key
    likely = nearest(name, (key for key, shape in keys.items() if shape == shapes[name] and key not in chosen))
    hint = f"the nearest unmapped key of that shape is {quoted(likely)}" if likely else "no unmapped key has that shape"
    if expected is not None and expected not in keys:
        hint += f"; by the names of the others, {quoted(expected)} is missing"
    return ScaffoldError(f"{count} {quoted(name)} of shape {list(shapes[name])}", hint=hint)


# Comparing names costs about 50 µs each; a hostile checkpoint must not make an error message slow.
_MAX_CANDIDATES = 400


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``name``, the first in order among equals; None without candidates."""
    best: tuple[float, str] | None = None
    matcher = SequenceMatcher(b=name[-200:], autojunk=False)
    for candidate in sorted(candidates)[:_MAX_CANDIDATES]:
        matcher.set_seq1(candidate[-200:])
        ratio = matcher.ratio()
        if best is None or ratio > best[0]:
            best = (ratio, candidate)
    return best[1] if best else None
