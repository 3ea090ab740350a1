"""The key map as the table that people read."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.checkpoint import CheckpointHeaders, fold
from scaffold.checkpoint.fold import natural_key
from scaffold.remap.key_map import KeyMap


@dataclass(frozen=True, slots=True)
class Row:
    """Checkpoint keys folded by layer, their target and their number; ``target`` is None for drops.

    A split has a row for each part, a join one for each key; ``note`` says which part it is.
    """

    source: str
    target: str | None
    count: int
    reason: str | None = None
    note: str | None = None


def rendered_table(key_map: KeyMap, headers: CheckpointHeaders) -> list[Row]:
    """Return a row for each folded key that becomes a parameter, then one for each drop rule; dead rules have none."""
    applied = key_map.apply_all(headers)
    pairs: dict[str | None, dict[str, str]] = {}
    for name, mapped in applied.targets.items():
        rule = key_map.rules[mapped.rule]
        for place, target in enumerate(mapped.targets):
            note = None
            if rule.op in ("split", "join"):
                number = place if rule.op == "split" else mapped.place
                note = f"part {number + 1} of {len(rule.parts)}"
            pairs.setdefault(note, {})[name] = target
    rows: list[Row] = []
    for note, targets_of in pairs.items():
        for source in fold(targets_of):
            targets = fold(targets_of[name] for name in source.names)
            if len(targets) == 1 and targets[0].count == source.count:
                rows.append(Row(source.pattern, targets[0].pattern, source.count, note=note))
            else:
                rows.extend(Row(name, targets_of[name], 1, note=note) for name in source.names)
    if len(pairs) > 1:
        rows.sort(key=lambda row: natural_key(row.source))
    for rule, count in zip(key_map.rules, applied.matches, strict=True):
        if rule.op == "drop" and count:
            rows.append(Row(rule.label, None, count, rule.reason))
    return rows
