"""Detects exchanged weights: a map whose shapes agree but that fills parameters with each other's weights.

Shapes cannot tell ``gate_proj`` from ``up_proj``. Names can: if another key has a parameter's name and is mapped
elsewhere, two weights were exchanged. The order of the parts of a fused weight is compared with upstream's table of
packed parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.key_map import AppliedMap, KeyMap
from scaffold.remap.rule import Rule

Stacked = Sequence[tuple[str, str, str | int]]
_LETTERS = {"q": 0, "k": 1, "v": 2}
_DEPTH = 32  # the most trailing components that are compared; hostile keys have thousands


def exchanged(key_map: KeyMap, applied: AppliedMap, headers: CheckpointHeaders) -> Iterator[tuple[str, str]]:
    """Yield each key that fills a parameter whose name another key of the same shape has, with a message.

    A rename with a stated reason is trusted.
    """
    moved: dict[str, str] = {}
    for name, mapped in applied.targets.items():
        rule = key_map.rules[mapped.rule]
        if rule.op == "rename" and not rule.reason and not f".{name}".endswith(f".{mapped.target}"):
            moved[name] = mapped.target
    bearers: dict[str, list[str]] = {}
    for name in moved:
        for ending in dotted_endings(name):
            bearers.setdefault(ending, []).append(name)
    for name, target in moved.items():
        own = _shared(name, target)
        # The key that shares the longest suffix with the target has its name.
        for ending in dotted_endings(target):
            length = ending.count(".") + 1
            if length <= own:
                break
            others = [other for other in bearers.get(ending, ())[:2] if other != name]
            if not others:
                continue
            there = moved[others[0]]
            if _shared(others[0], there) < length and headers.tensors[others[0]].shape == headers.tensors[name].shape:
                yield (
                    name,
                    f"{quoted(name)} becomes {quoted(target)}, whose name {quoted(others[0])} bears, and that becomes "
                    f"{quoted(there)}: they look exchanged",
                )
            break


def dotted_endings(name: str) -> list[str]:
    """Return the dotted suffixes of a name, the longest first."""
    found: list[str] = []
    place = len(name)
    while place >= 0 and len(found) < _DEPTH:
        place = name.rfind(".", 0, place)
        found.append(name[place + 1 :])
    return found[::-1]


def _shared(first: str, second: str) -> int:
    """Return how many trailing components two names share."""
    count = 0
    for one, other in zip(reversed(first.split(".")), reversed(second.split(".")), strict=False):
        if one != other:
            break
        count += 1
    return count


def part_words(rule: Rule) -> list[str]:
    """Return the components that distinguish the parts of a split or join: ``q_proj``, ``k_proj``, ``v_proj``."""
    split = [tuple(part.split(".")) for part in rule.parts]
    if len({len(words) for words in split}) == 1:
        places = [place for place, words in enumerate(zip(*split, strict=True)) if len(set(words)) > 1]
        if len(places) == 1:
            return [words[places[0]] for words in split]
    return ["" for _ in split]


def stated_order(rule: Rule, stacked: Stacked) -> list[str] | None:
    """Return the parts' words in upstream's order; None if its table does not have them together.

    Args:
        rule: a split or join.
        stacked: rows ``(packed parameter, part, shard)`` of upstream's loader; shards are numbers or ``q``, …
    """
    words = part_words(rule)
    packed: dict[str, dict[str, str | int]] = {}
    for target, source, shard in stacked:
        packed.setdefault(target, {})[source.strip(".").rpartition(".")[2]] = shard
    for shards in packed.values():
        if all(word in shards for word in words):
            return sorted(words, key=lambda word: shard_rank(shards[word]))
    return None


def shard_rank(shard: str | int) -> tuple[int, str]:
    """Return a sort key that puts a packed parameter's shards in the order in which it holds them."""
    return (shard, "") if isinstance(shard, int) else (_LETTERS.get(shard, len(_LETTERS)), shard)


def misordered(key_map: KeyMap, stacked: Stacked) -> Iterator[tuple[str, str]]:
    """Yield the source of each split or join whose parts are in another order than upstream's, with a message."""
    for rule in key_map.rules:
        order = stated_order(rule, stacked) if rule.op in ("split", "join") else None
        words = part_words(rule)
        if order is not None and order != words:
            yield (
                rule.label,
                f"the parts of {quoted(rule.label)} are {', '.join(words)}, upstream packs {', '.join(order)}",
            )


def duplicates(stacked: Mapping[tuple[str, str], set[str | int]]) -> Iterator[str]:
    """Yield a message for each part that upstream's tables place twice in one packed parameter."""
    for (target, source), shards in stacked.items():
        if len(shards) > 1:
            yield f"upstream's tables place {quoted(source)} of {quoted(target)} at {sorted(map(str, shards))}"
