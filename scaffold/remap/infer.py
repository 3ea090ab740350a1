"""Infers a key map from a checkpoint's keys and the training module's parameters, by names and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.fold import Template, join_numbers, natural_key, split_numbers
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.compact import PLACEHOLDERS, Cover, pattern_text
from scaffold.remap.key_map import KeyMap, Mapped
from scaffold.remap.nearest import nearest
from scaffold.remap.pattern import Pattern, literal
from scaffold.remap.rule import Rule
from scaffold.remap.towers import Tower, candidate_towers

DEFAULT_REASON = "not a parameter of the training module"


def infer_key_map(
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    *,
    known: Sequence[Rule] = (),
    drop_reasons: Mapping[str, str] | None = None,
    default_reason: str = DEFAULT_REASON,
    computed: Iterable[str] = (),
) -> KeyMap:
    """Return the rules that fill every parameter from exactly one key of equal shape, and drop the other keys.

    A parameter takes the key that the prefix shared with the most other parameters leads to. Nothing is guessed from a
    shape alone, and a key left over inside a layer that is otherwise taken is an error unless a reason is given.

    Args:
        headers: the checkpoint.
        parameters: shape of each parameter of the training module.
        known: rules that are established already; they come first and settle their keys.
        drop_reasons: pattern of keys to drop (``vit_model.``, ``layers.{n}.rotary.``) to the reason; the longest wins.
        default_reason: the reason of every other drop.
        computed: parameters that no key fills because the module computes them.

    Raises:
        ScaffoldError: a parameter that no key or more than one could fill, named with the nearest unmapped key of its
            shape, or keys left over inside a layer.
    """
    shapes = {name: tuple(shape) for name, shape in parameters.items() if name not in set(computed)}
    if not shapes:
        raise ScaffoldError("the training module has no parameters to fill")
    settled = KeyMap(tuple(known))
    keys = {}
    for name, tensor in headers.tensors.items():
        found = settled.apply(name)
        if found is None:
            keys[name] = tensor.shape
        elif isinstance(found, Mapped):
            _take_known(shapes, name, found.target, tensor.shape)
    towers = candidate_towers(keys, shapes)
    chosen = _choose(towers, shapes, keys)
    reasons = _reasons(keys.keys() - chosen.keys(), drop_reasons or {}, default_reason)
    _refuse_leftovers(chosen, reasons, default_reason)
    inner, outer, renames = _rules(keys, chosen, reasons)
    key_map = KeyMap((*known, *inner, *renames, *outer))
    for name, (_, target) in chosen.items():
        result = key_map.apply(name)
        if not isinstance(result, Mapped) or result.target != target:
            raise ScaffoldError(f"no rules say that {quoted(name)} becomes {quoted(target)}", hint="give them by hand")
    return key_map


def _take_known(shapes: dict[str, tuple[int, ...]], name: str, target: str, shape: tuple[int, ...]) -> None:
    wanted = shapes.pop(target, None)
    if wanted is None:
        raise ScaffoldError(f"a known rule maps {quoted(name)} to {quoted(target)}, no parameter that is still to fill")
    if wanted != shape:
        raise ScaffoldError(f"{quoted(name)} has shape {list(shape)}, its parameter {quoted(target)} {list(wanted)}")


def _choose(
    towers: Mapping[Tower, Mapping[str, str]],
    shapes: Mapping[str, tuple[int, ...]],
    keys: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[Tower, str]]:
    """Return the tower and the parameter of each key that is taken."""
    chosen: dict[str, tuple[Tower, str]] = {}
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
            raise ScaffoldError(f"{quoted(source)} could fill {quoted(chosen[source][1])} and {quoted(name)}")
        chosen[source] = (tower, name)
    if unfilled:
        raise _unfilled(unfilled, shapes, keys, chosen)
    return chosen


def _unfilled(
    names: list[str],
    shapes: Mapping[str, tuple[int, ...]],
    keys: Mapping[str, tuple[int, ...]],
    chosen: Mapping[str, tuple[Tower, str]],
) -> ScaffoldError:
    name = min(names, key=natural_key)
    count = f"{len(names)} of {len(shapes)} parameters are filled by no key of the checkpoint, first"
    template, numbers = split_numbers(name)
    counts: dict[Tower, int] = {}
    for tower, _ in chosen.values():
        counts[tower] = counts.get(tower, 0) + 1
    for tower in sorted(counts, key=lambda tower: -counts[tower]):
        depth = len(tower.target)
        mapped = tower.numbers(numbers) if template[:depth] == tower.target else None
        key = None if mapped is None else join_numbers(tower.source + template[depth:], mapped)
        if key is not None and key in keys:
            return ScaffoldError(f"{count} {quoted(name)}: it has shape {list(shapes[name])}, {key} {list(keys[key])}")
    likely = nearest(name, (key for key, shape in keys.items() if shape == shapes[name] and key not in chosen))
    hint = f"the nearest unmapped key of that shape is {quoted(likely)}" if likely else "no unmapped key has that shape"
    return ScaffoldError(f"{count} {quoted(name)} of shape {list(shapes[name])}", hint=hint)


def _reasons(names: Iterable[str], given: Mapping[str, str], default: str) -> dict[str, str]:
    patterns = sorted(((Pattern(text), reason) for text, reason in given.items()), key=lambda pair: -pair[0].weight)
    return {
        name: next((reason for pattern, reason in patterns if pattern.match(name) is not None), default)
        for name in names
    }


def _refuse_leftovers(chosen: Iterable[str], reasons: Mapping[str, str], default: str) -> None:
    """A layer that is taken is taken whole: what is left of it was more likely forgotten than meant to go."""
    layers = {layer for name in chosen for layer in _layer(name)}
    left = [name for name, reason in reasons.items() if reason == default and layers.intersection(_layer(name))]
    if left:
        raise ScaffoldError(
            f"{len(left)} keys of the checkpoint are left over inside layers that the training module takes, first "
            f"{quoted(min(left, key=natural_key))}",
            hint="the module lacks a parameter for it, or give a reason to drop it",
        )


def _layer(name: str) -> list[Template]:
    """Return the template of the innermost numbered layer that a key lies in, as a list of one or none."""
    template, _ = split_numbers(name)
    places = [place for place, part in enumerate(template[:-1]) if part is None]
    return [template[: places[-1] + 1]] if places else []


def _rules(
    keys: Mapping[str, tuple[int, ...]], chosen: Mapping[str, tuple[Tower, str]], reasons: Mapping[str, str]
) -> tuple[list[Rule], list[Rule], list[Rule]]:
    """Return drops inside renamed prefixes, other drops, and renames with the most specific target first."""
    renames = []
    for tower in dict.fromkeys(tower for tower, _ in chosen.values()):
        source, target = _parts(tower)
        below = [name for name in keys if _lies_in(name, tower)]
        mine = {name for name in below if name in chosen and chosen[name][0] == tower}
        # Without a prefix of its own a rename would take every key that no rule explains, and take it again.
        search = (
            Cover(mine.__contains__, reasons.__contains__)
            if source
            else Cover(mine.__contains__, least=min(1, len(target)))
        )
        for node in search.nodes(source, below):
            parts = (*target, *node.parts[len(source) :])
            renames.append(Rule(pattern_text(node.parts, node.whole), pattern_text(parts, node.whole)))
    renames.sort(key=lambda rule: (-rule.target_pattern.weight, rule.source))
    inner: list[Rule] = []
    outer: list[Rule] = []
    for reason in sorted(set(reasons.values())):
        mine = {name for name, given in reasons.items() if given == reason}
        for node in Cover(mine.__contains__).nodes((), keys):
            drop = Rule(pattern_text(node.parts, node.whole), None, "drop", reason)
            overlaps = any(rule.source_pattern.match(name) for rule in renames for name in node.keys)
            (inner if overlaps else outer).append(drop)
    inner.sort(key=lambda rule: natural_key(rule.source))
    outer.sort(key=lambda rule: natural_key(rule.source))
    return inner, outer, renames


def _parts(tower: Tower) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sides = []
    for place, side in enumerate((tower.source, tower.target)):
        numbers = PLACEHOLDERS if tower.fixed is None else [str(number) for number in tower.fixed[place]]
        following = iter(numbers)
        sides.append(tuple(next(following) if part is None else literal(part) for part in side))
    return sides[0], sides[1]


def _lies_in(name: str, tower: Tower) -> bool:
    template, numbers = split_numbers(name)
    fixed = tower.fixed[0] if tower.fixed else ()
    return template[: len(tower.source)] == tower.source and numbers[: len(fixed)] == fixed
