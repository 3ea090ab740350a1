"""Infers a key map from a checkpoint's keys and the training module's parameters, by names and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.fold import Template, natural_key, split_numbers
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.choose import choose
from scaffold.remap.compact import PLACEHOLDERS, Cover, pattern_text
from scaffold.remap.key_map import KeyMap, Mapped
from scaffold.remap.layout import misfits
from scaffold.remap.packed import AXIS, fuse, packed_parts
from scaffold.remap.pattern import Pattern, literal
from scaffold.remap.rule import Rule
from scaffold.remap.sourced import SourceRules
from scaffold.remap.towers import Tower

DEFAULT_REASON = "not a parameter of the training module"


_Assignment = tuple[tuple[str, ...], tuple[str, ...]]


def infer_key_map(
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    *,
    known: Sequence[Rule] = (),
    source: SourceRules | None = None,
    drop_reasons: Mapping[str, str] | None = None,
    partial: bool = False,
) -> KeyMap:
    """Return the rules that fill every parameter exactly once, and drop the other keys.

    A parameter takes the key of its shape under the prefix shared with the most other parameters. Parameters without
    such a key are looked up under the names of upstream's loader, and in upstream's packed parameters. Nothing is
    guessed from a shape alone, and an unused key inside a layer that is otherwise used is an error unless a reason is
    given.

    Args:
        headers: the checkpoint.
        parameters: shape of each parameter of the training module.
        known: rules that are established already; they come first and settle their keys.
        source: what upstream's loader says: renames, packed parameters in order, keys that it skips.
        drop_reasons: pattern of keys to drop (``vit_model.``, ``layers.{n}.rotary.``) to the reason; the longest wins.
        partial: return incomplete rules, for the proof to report, if keys are missing, unused or of another shape.

    Raises:
        ScaffoldError: a parameter that no key or more than one could fill, named with the nearest unmapped key of its
            shape; keys left over inside a layer; upstream skips a key that training needs, or contradicts itself.
    """
    shapes = {name: tuple(shape) for name, shape in parameters.items()}
    if not shapes:
        raise ScaffoldError("the training module has no parameters to fill")
    source = source or SourceRules()
    keys = _settle(KeyMap(tuple(known)), headers, shapes)
    parts = packed_parts(source.stacked)
    wanted = fuse(shapes, keys, parts)
    given = fuse(keys, wanted.shapes, parts)
    chosen, bridged = choose(wanted.shapes, given.shapes, source.upstream_name, partial)
    bridged |= {
        name: chosen.pop(name)[1]
        for name, (_, target) in list(chosen.items())
        if name in given.groups or target in wanted.groups
    }
    exact = _exact_rules(bridged, given.groups, wanted.groups, headers, source)
    taken = {part for name in bridged for part in given.parts(name)}
    keys = {name: shape for name, shape in keys.items() if name not in taken}
    source.refuse_skipped((*chosen, *taken))
    given_reasons = _reasons(keys.keys() - chosen.keys(), drop_reasons or {})
    reasons = source.cite(given_reasons, DEFAULT_REASON)
    left = _leftovers((*chosen, *taken), reasons)
    if left and not partial:
        raise ScaffoldError(
            f"{len(left)} keys of the checkpoint are left over inside layers that the training module takes, first "
            f"{quoted(min(left, key=natural_key))}",
            hint="the module lacks a parameter for it, or give a reason to drop it",
        )
    reasons = {name: reason for name, reason in reasons.items() if name not in left}
    inner, outer, renames = _rules(keys, chosen, reasons)
    key_map = KeyMap((*known, *exact, *inner, *renames, *outer))
    assignments: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (target,) for name, (_, target) in chosen.items()}
    assignments |= {given.parts(name): wanted.parts(target) for name, target in bridged.items()}
    for names, targets in assignments.items():
        for name in names:
            result = key_map.apply(name)
            if not partial and (not isinstance(result, Mapped) or result.targets != targets):
                shown = quoted(" + ".join(targets))
                raise ScaffoldError(f"no rules say that {quoted(name)} becomes {shown}", hint="give them by hand")
    return key_map


def _settle(
    known: KeyMap, headers: CheckpointHeaders, shapes: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Remove parameters filled by known rules from ``shapes`` and return the keys without a known rule."""
    applied = known.apply_all(headers)
    for name, mapped in applied.targets.items():
        for target in mapped.targets:
            if target not in shapes:
                raise ScaffoldError(
                    f"a known rule maps {quoted(name)} to {quoted(target)}, no parameter that is still to fill"
                )
    for problem in applied.problems:
        if problem.kind in ("collision", "incomplete"):
            raise ScaffoldError(f"known rules: {problem.message}")
    for _, message in misfits(known, applied, headers, shapes):
        raise ScaffoldError(message)
    for target in applied.sources:
        del shapes[target]
    settled = applied.targets.keys() | applied.drops.keys()
    return {name: tensor.shape for name, tensor in headers.tensors.items() if name not in settled}


def _exact_rules(
    bridged: Mapping[str, str],
    joined: Mapping[str, tuple[str, ...]],
    split: Mapping[str, tuple[str, ...]],
    headers: CheckpointHeaders,
    source: SourceRules,
) -> list[Rule]:
    """Return the rules for keys without a prefix rule; a join of unequal parts states their sizes."""
    rules = _general_rules(
        (((joined.get(name, (name,))), split.get(target, (target,))) for name, target in bridged.items()),
        axis=AXIS,
        origin=source.origin,
    )
    found = []
    for rule in rules:
        sizes: set[tuple[int, ...]] = set()
        for names in joined.values() if rule.op == "join" else ():
            if rule.source_patterns[0].match(names[0]) is not None:
                sizes.add(tuple(headers.tensors[name].shape[AXIS] for name in names))
        unequal = len(sizes) == 1 and len(set(*sizes)) > 1
        found.append(replace(rule, sizes=sizes.pop()) if unequal else rule)
    return found


def _reasons(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    patterns = sorted(((Pattern(text), reason) for text, reason in given.items()), key=lambda pair: -pair[0].weight)
    return {
        name: next((reason for pattern, reason in patterns if pattern.match(name) is not None), DEFAULT_REASON)
        for name in names
    }


def _leftovers(chosen: Iterable[str], reasons: Mapping[str, str]) -> set[str]:
    """Return unused keys of layers that are otherwise used: they were more likely forgotten than dropped on purpose."""
    layers = {layer for name in chosen for layer in _layers(name)[-1:]}
    return {name for name, reason in reasons.items() if reason == DEFAULT_REASON and layers.intersection(_layers(name))}


def _layers(name: str) -> list[Template]:
    """Return the templates of the numbered layers that a key lies in, the outermost first."""
    template, _ = split_numbers(name)
    return [template[: place + 1] for place, part in enumerate(template[:-1]) if part is None]


def _rules(
    keys: Mapping[str, tuple[int, ...]], chosen: Mapping[str, tuple[Tower, str]], reasons: Mapping[str, str]
) -> tuple[list[Rule], list[Rule], list[Rule]]:
    """Return drops inside renamed prefixes, other drops, and renames with the most specific target first."""
    renames = []
    for tower in dict.fromkeys(tower for tower, _ in chosen.values()):
        source, target = _parts(tower)
        below = [name for name in keys if _lies_in(name, tower)]
        mine = {name for name in below if name in chosen and chosen[name][0] == tower}
        # A rename without a prefix would match every key that no rule explains.
        search = (
            Cover(mine.__contains__, reasons.__contains__)
            if source
            else Cover(mine.__contains__, least=min(1, len(target)))
        )
        for node in search.nodes(source, below):
            parts = (*target, *node.parts[len(source) :])
            renames.append(Rule(pattern_text(node.parts, node.whole), pattern_text(parts, node.whole)))
    renames.sort(key=lambda rule: (-rule.target_patterns[0].weight, rule.label))
    inner: list[Rule] = []
    outer: list[Rule] = []
    for reason in sorted(set(reasons.values())):
        mine = {name for name, given in reasons.items() if given == reason}
        for node in Cover(mine.__contains__).nodes((), keys):
            drop = Rule(pattern_text(node.parts, node.whole), None, "drop", reason)
            overlaps = any(rule.match(name) for rule in renames for name in node.keys)
            (inner if overlaps else outer).append(drop)
    inner.sort(key=lambda rule: natural_key(rule.label))
    outer.sort(key=lambda rule: natural_key(rule.label))
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


def _general_rules(assignments: Iterable[_Assignment], *, axis: int = 0, origin: str | None = None) -> list[Rule]:
    """Return rules that say the same as assignments of keys to parameters, one for all layers where they agree.

    Args:
        assignments: keys and the parameters they become; one and one is renamed, one and several split, several and
            one joined in that order.
        axis: along which parts stand.
        origin: who says so.
    """
    rules: dict[Rule, None] = {}
    for sources, targets in assignments:
        sides = _patterns((*sources, *targets))
        sources, targets = sides[: len(sources)], sides[len(sources) :]
        if len(targets) > 1:
            rule = Rule(sources[0], None, "split", parts=targets, axis=axis, origin=origin)
        elif len(sources) > 1:
            rule = Rule(None, targets[0], "join", parts=sources, axis=axis, origin=origin)
        else:
            rule = Rule(sources[0], targets[0], origin=origin)
        rules[rule] = None
    return list(rules)


def _patterns(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of names; the numbers that all of them begin with become placeholders, others stay."""
    split = [split_numbers(name) for name in names]
    common = 0
    for numbers in zip(*(numbers for _, numbers in split), strict=False):
        if len(set(numbers)) > 1:
            break
        common += 1
    ends = {name.rpartition(".")[2] for name in names}
    prefix = len(ends) == 1 and all("." in name for name in names)
    return tuple(pattern_text(_written(*one, common, prefix), whole=not prefix) for one in split)


def _written(template: Template, numbers: tuple[int, ...], common: int, prefix: bool) -> list[str]:
    following = iter([*PLACEHOLDERS[:common], *map(str, numbers[common:])])
    parts = [next(following) if part is None else literal(part) for part in template]
    return parts[:-1] if prefix else parts
