"""Proves a key map on a checkpoint and the training module's parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.dtypes import dtype_kind
from scaffold.checkpoint.fold import natural_key
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.key_map import AppliedMap, KeyMap
from scaffold.remap.nearest import nearest

_SUGGESTED = 10

_CHECK_OF_PROBLEM = {
    "unmatched": "covers",
    "collision": "injective",
    "dead_rule": "no_dead_rule",
    "inverse": "invertible",
    "repeated": "invertible",
}


@dataclass(frozen=True, slots=True)
class Offender:
    """A name by which a check of the proof fails, what is wrong with it, and the name that was probably meant."""

    check: str
    name: str
    message: str
    suggestion: str | None = None


@dataclass(frozen=True)
class Proof:
    """The outcome. ``engine`` and ``lora``, the rollout's side, are None where nobody looked."""

    key_map: KeyMap
    headers: CheckpointHeaders
    applied: AppliedMap
    counts: Mapping[str, int]
    offenders: tuple[Offender, ...]
    engine: bool | None = None
    lora: bool | None = None

    def passes(self, check: str) -> bool:
        """Tell whether ``covers``, ``fills``, ``injective``, ``no_dead_rule``, ``invertible`` or ``shapes`` holds."""
        return all(offender.check != check for offender in self.offenders)

    @property
    def holds(self) -> bool:
        """Whether nothing was found against the map; what nobody looked at does not count."""
        return not self.offenders and self.engine is not False and self.lora is not False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``omni-scaffold remap``."""
        entries = []
        for name, tensor in self.headers.tensors.items():
            mapped = self.applied.targets.get(name)
            entries.append(
                {
                    "source": name,
                    "target": mapped.target if mapped else None,
                    "shape": list(tensor.shape),
                    "dtype": tensor.dtype,
                    "op": "rename" if mapped else "drop" if name in self.applied.drops else None,
                }
            )
        checks = ("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes")
        return {
            "schema": 1,
            "counts": dict(self.counts),
            "rules": [
                {"from": rule.source, "to": rule.target, "matches": count}
                for rule, count in zip(self.key_map.rules, self.applied.matches, strict=True)
            ],
            "proof": {**{check: self.passes(check) for check in checks}, "engine": self.engine, "lora": self.lora},
            "entries": entries,
        }


def prove(
    key_map: KeyMap,
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    *,
    computed: Collection[str] = (),
    dtypes: Mapping[str, str] | None = None,
) -> Proof:
    """Check a map from the checkpoint's side and the training module's.

    - ``covers``: every key becomes a parameter or is dropped for a reason.
    - ``fills``: every parameter is filled, or listed as computed.
    - ``injective``: no two keys become one parameter.
    - ``no_dead_rule``: every rule matches a key.
    - ``invertible``: every target leads back to its key, and a map applied twice changes nothing or fails.
    - ``shapes``: shapes are equal, and dtypes of one kind where they are given.

    Args:
        key_map: the rules.
        headers: the checkpoint.
        parameters: shape of each parameter of the training module.
        computed: parameters that the module computes, filled or not.
        dtypes: dtype of parameters as safetensors spells it; a cast within floats or integers is no difference.
    """
    applied = key_map.apply_all(headers)
    offenders: list[Offender] = []
    filled: set[str] = set()
    unexplained = sum(problem.kind == "unmatched" for problem in applied.problems)
    ignored = len(applied.drops)
    for name, mapped in applied.targets.items():
        tensor = headers.tensors[name]
        shape = parameters.get(mapped.target)
        if shape is None:
            unexplained += 1
            message = f"{quoted(name)} becomes {quoted(mapped.target)}, which is no parameter"
            offenders.append(Offender("covers", name, message))
            continue
        filled.add(mapped.target)
        if tuple(shape) != tensor.shape:
            message = (
                f"{quoted(name)} has shape {list(tensor.shape)}, its parameter {quoted(mapped.target)} {list(shape)}"
            )
            offenders.append(Offender("shapes", name, message))
        wanted = (dtypes or {}).get(mapped.target)
        if wanted is not None and dtype_kind(wanted) != dtype_kind(tensor.dtype):
            message = f"{quoted(name)} is {tensor.dtype}, its parameter {quoted(mapped.target)} {wanted}"
            offenders.append(Offender("shapes", name, message))
    for problem in applied.problems:
        offenders.append(Offender(_CHECK_OF_PROBLEM[problem.kind], problem.name, problem.message))
    unfilled = sorted((name for name in parameters if name not in filled and name not in computed), key=natural_key)
    for name in unfilled:
        message = f"no key fills the parameter {quoted(name)} of shape {list(parameters[name])}"
        offenders.append(Offender("fills", name, message))
    counts = {
        "checkpoint": len(headers.tensors),
        "mapped": len(headers.tensors) - ignored - unexplained,
        "ignored": ignored,
        "unexplained": unexplained,
        "parameters": len(parameters),
        "unfilled": len(unfilled),
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
    taken = {name for name, mapped in applied.targets.items() if mapped.target in parameters}
    seen: dict[str, int] = {}
    result = []
    for offender in offenders:
        seen[offender.check] = seen.get(offender.check, 0) + 1
        suggestion = None
        if seen[offender.check] <= _SUGGESTED and offender.check == "fills":
            shape = tuple(parameters[offender.name])
            free = (key for key, tensor in headers.tensors.items() if tensor.shape == shape and key not in taken)
            suggestion = nearest(offender.name, free)
        elif seen[offender.check] <= _SUGGESTED and offender.check == "covers":
            shape = headers.tensors[offender.name].shape
            suggestion = nearest(offender.name, (name for name in unfilled if tuple(parameters[name]) == shape))
        result.append(Offender(offender.check, offender.name, offender.message, suggestion))
    return tuple(result)
