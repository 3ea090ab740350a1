"""The key map as the table that people read."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.checkpoint import CheckpointHeaders, fold
from scaffold.remap.key_map import KeyMap


@dataclass(frozen=True, slots=True)
class Row:
    """Checkpoint keys folded by layer, what they become, how many they are; ``target`` is None for drops."""

    source: str
    target: str | None
    count: int
    reason: str | None = None


def rendered_table(key_map: KeyMap, headers: CheckpointHeaders) -> list[Row]:
    """Return a row for each folded key that is renamed, then one for each drop rule; dead rules have no row."""
    applied = key_map.apply_all(headers)
    rows = []
    for source in fold(applied.targets):
        targets = fold(applied.targets[name].target for name in source.names)
        if len(targets) == 1 and targets[0].count == source.count:
            rows.append(Row(source.pattern, targets[0].pattern, source.count))
        else:
            rows.extend(Row(name, applied.targets[name].target, 1) for name in source.names)
    for rule, count in zip(key_map.rules, applied.matches, strict=True):
        if rule.op == "drop" and count:
            rows.append(Row(rule.source, None, count, rule.reason))
    return rows
