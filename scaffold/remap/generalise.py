"""Rules from assignments that no common prefix explains: numbers become placeholders, the last component a rest."""

from __future__ import annotations

from collections.abc import Iterable

from scaffold.checkpoint.fold import Template, split_numbers
from scaffold.remap.compact import PLACEHOLDERS, pattern_text
from scaffold.remap.pattern import literal
from scaffold.remap.rule import Rule

Assignment = tuple[tuple[str, ...], tuple[str, ...]]


def general_rules(assignments: Iterable[Assignment], *, axis: int = 0, origin: str | None = None) -> list[Rule]:
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
    return tuple(pattern_text(_parts(*one, common, prefix), whole=not prefix) for one in split)


def _parts(template: Template, numbers: tuple[int, ...], common: int, prefix: bool) -> list[str]:
    following = iter([*PLACEHOLDERS[:common], *map(str, numbers[common:])])
    parts = [next(following) if part is None else literal(part) for part in template]
    return parts[:-1] if prefix else parts
