"""Proves a key map on a checkpoint and the training module's parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.fold import natural_key
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.choose import nearest
from scaffold.remap.exchange import Stacked, exchanged, misordered
from scaffold.remap.key_map import AppliedMap, KeyMap
from scaffold.remap.layout import misfits

CHECKS = ("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes")
_SUGGESTED = 10

_CHECK_OF_PROBLEM = {
    "unmatched": "covers",
    "collision": "injective",
    "incomplete": "fills",
    "dead_rule": "no_dead_rule",
    "inverse": "invertible",
    "repeated": "invertible",
}


@dataclass(frozen=True, slots=True)
class Offender:
    """A name that fails a check of the proof, what is wrong with it, and the name that was probably meant."""

    check: str
    name: str
    message: str
    suggestion: str | None = None


@dataclass(frozen=True)
class Proof:
    """The outcome for a map from names and shapes; ``engine`` is False where names look exchanged, else None."""

    key_map: KeyMap
    headers: CheckpointHeaders
    applied: AppliedMap
    counts: Mapping[str, int]
    offenders: tuple[Offender, ...]

    def passes(self, check: str) -> bool:
        """Tell whether ``covers``, ``fills``, ``injective``, ``no_dead_rule``, ``invertible`` or ``shapes`` holds."""
        return all(offender.check != check for offender in self.offenders)

    @property
    def outcomes(self) -> dict[str, bool | None]:
        """The checks of the map, and that of the engine's side, where names can show only errors."""
        engine = None if self.passes("engine") else False
        return {**{check: self.passes(check) for check in CHECKS}, "engine": engine, "lora": None}

    @property
    def holds(self) -> bool:
        """Whether no check found an error."""
        return not self.offenders

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``omni-scaffold remap``.

        ``entries`` has a row for each pair of key and parameter, and one for each key without. In ``rules``, ``to`` of
        a split and ``from`` of a join are lists.
        """
        entries = []
        for name, tensor in self.headers.tensors.items():
            mapped = self.applied.targets.get(name)
            op = self.key_map.rules[mapped.rule].op if mapped else "drop" if name in self.applied.drops else None
            entries += [
                {"source": name, "target": target, "shape": list(tensor.shape), "dtype": tensor.dtype, "op": op}
                for target in (mapped.targets if mapped else (None,))
            ]
        return {
            "schema": 1,
            "counts": dict(self.counts),
            "rules": [
                {"from": _side(rule.sources), "to": _side(rule.targets), "matches": count}
                for rule, count in zip(self.key_map.rules, self.applied.matches, strict=True)
            ],
            "proof": self.outcomes,
            "entries": entries,
        }


def _side(patterns: tuple[str, ...]) -> str | list[str] | None:
    return list(patterns) if len(patterns) > 1 else patterns[0] if patterns else None


def prove(
    key_map: KeyMap,
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    *,
    computed: Collection[str] = (),
    stacked: Stacked = (),
) -> Proof:
    """Check a map from the checkpoint's side and the training module's.

    - ``covers``: every key becomes a parameter, parts of one or several, or is dropped for a reason.
    - ``fills``: every parameter is filled whole, or listed as computed.
    - ``injective``: no two keys become one parameter, unless as different parts of a join.
    - ``no_dead_rule``: every rule matches a key.
    - ``invertible``: every target leads back to its keys, and a map applied twice changes nothing or fails.
    - ``shapes``: shapes are equal or add up.
    - ``engine`` fails where two names of equal shape were exchanged, or parts stand in another order than upstream's.

    Args:
        key_map: the rules.
        headers: the checkpoint.
        parameters: shape of each parameter of the training module.
        computed: parameters that the module computes; a key for one is as wrong as an unknown key.
        stacked: upstream's table of packed parameters, rows ``(packed, part, shard)``.
    """
    applied = key_map.apply_all(headers)
    offenders: list[Offender] = []
    filled: set[str] = set()
    unexplained = sum(problem.kind == "unmatched" for problem in applied.problems)
    for name, mapped in applied.targets.items():
        strange = [target for target in mapped.targets if target not in parameters]
        if strange:
            unexplained += 1
            message = f"{quoted(name)} becomes {quoted(strange[0])}, which is not a parameter"
            offenders.append(Offender("covers", name, message))
        filled.update(mapped.targets)
    offenders += [Offender("shapes", *found) for found in misfits(key_map, applied, headers, parameters)]
    for problem in applied.problems:
        offenders.append(Offender(_CHECK_OF_PROBLEM[problem.kind], problem.name, problem.message))
    for name in computed:
        if name not in parameters:
            offenders.append(Offender("fills", name, f"{quoted(name)} is listed as computed and is not a parameter"))
        elif name in filled:
            message = f"{quoted(name)} is listed as computed, and {quoted(applied.sources[name][0])} fills it"
            offenders.append(Offender("fills", name, message))
    unfilled = sorted((name for name in parameters if name not in filled and name not in computed), key=natural_key)
    for name in unfilled:
        message = f"no key fills the parameter {quoted(name)} of shape {list(parameters[name])}"
        offenders.append(Offender("fills", name, message))
    offenders += [Offender("engine", *found) for found in exchanged(key_map, applied, headers)]
    offenders += [Offender("engine", *found) for found in misordered(key_map, stacked)]
    incomplete = sum(problem.kind == "incomplete" for problem in applied.problems)
    ignored = len(applied.drops)
    counts = {
        "checkpoint": len(headers.tensors),
        "mapped": len(headers.tensors) - ignored - unexplained,
        "ignored": ignored,
        "unexplained": unexplained,
        "parameters": len(parameters),
        "unfilled": len(unfilled) + incomplete,
    }
    found = _with_suggestions(offenders, applied, headers, parameters, unfilled)
    return Proof(key_map, headers, applied, counts, found)


def _with_suggestions(
    offenders: list[Offender],
    applied: AppliedMap,
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    unfilled: list[str],
) -> tuple[Offender, ...]:
    """Give the first offenders of each check the nearest free name of equal shape on the other side."""
    taken = {name for name, mapped in applied.targets.items() if all(target in parameters for target in mapped.targets)}
    seen: dict[str, int] = {}
    result = []
    for offender in offenders:
        seen[offender.check] = seen.get(offender.check, 0) + 1
        suggestion = None
        if seen[offender.check] <= _SUGGESTED and offender.check == "fills" and offender.name in unfilled:
            shape = tuple(parameters[offender.name])
            free = (key for key, tensor in headers.tensors.items() if tensor.shape == shape and key not in taken)
            suggestion = nearest(offender.name, free)
        elif seen[offender.check] <= _SUGGESTED and offender.check == "covers":
            shape = headers.tensors[offender.name].shape
            suggestion = nearest(offender.name, (name for name in unfilled if tuple(parameters[name]) == shape))
        result.append(Offender(offender.check, offender.name, offender.message, suggestion))
    return tuple(result)
