"""What loading a checkpoint's headers shows: filled, empty, not taken, shapes, dtypes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from scaffold.checkpoint import CheckpointHeaders, fold
from scaffold.checkpoint.fold import is_index, natural_key
from scaffold.checkpoint.layout import WEIGHTS
from scaffold.checkpoint.local import read_file
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap import Dropped, KeyMap
from scaffold.verify.loading.causes import OWN, WRAPPERS, distilled, is_scale, quantised, told_wrapper, wrapper_of
from scaffold.verify.package import Package

CHECKS = ("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """What speaks against a checkpoint: a check of the proof, or None for a cause of several; and the line."""

    check: str | None
    message: str

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{self.check}: {self.message}" if self.check else self.message


@dataclass(frozen=True)
class LoadingProof:
    """What a package's own loader made of a checkpoint's headers.

    Attributes:
        package: name of the package.
        source: label of the checkpoint.
        module: class of the module; None where the loader raised.
        tensors: dtype and shape of each key of the files that were opened.
        names: keys of the checkpoint's files, opened or not.
        targets: parameters that each key became, wholly or in part.
        shapes: of each parameter and buffer of the module.
        empty: parameters that nothing filled.
        reasons: of keys that were not taken, where the package states one.
        rules: of the package, as data, with the number of keys of each; None for a loader without a table.
        findings: what speaks against it, the cause first.
        outcomes: whether each check holds; None where nobody looked.
        notes: what the reader should know of a checkpoint that fits.
    """

    package: str
    source: str
    module: str | None
    tensors: Mapping[str, tuple[str, Shape]]
    names: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    shapes: Mapping[str, Shape]
    empty: tuple[str, ...]
    reasons: Mapping[str, str]
    rules: tuple[dict[str, Any], ...] | None
    findings: tuple[Finding, ...]
    outcomes: Mapping[str, bool | None]
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the checkpoint."""
        return not self.findings

    @property
    def skipped(self) -> list[str]:
        """Keys of the opened files that became no parameter."""
        return [name for name in self.tensors if name not in self.targets]

    @property
    def counts(self) -> dict[str, int | None]:
        """The counts of the JSON; None of a module that was not made."""
        needed = sum(finding.check == "covers" for finding in self.findings)
        made = self.module is not None
        return {
            "checkpoint": len(self.tensors),
            "mapped": len(self.targets) if made else None,
            "ignored": len(self.skipped) - needed if made else None,
            "unexplained": needed if made else None,
            "parameters": len(self.shapes) if made else None,
            "unfilled": len(self.empty) if made else None,
        }

    @property
    def summary(self) -> str:
        """The counts in words."""
        if self.module is None:
            return f"{len(self.tensors)} keys were looked at; the loader refuses the checkpoint"
        return (
            f"{len(self.tensors)} keys: {len(self.targets)} fill {len(self.shapes) - len(self.empty)} of "
            f"{len(self.shapes)} tensors of {self.module}, {len(self.skipped)} are not taken"
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``remap``; what a loader without a table of rules cannot say is None."""
        joined = {target for target, keys in self._sources().items() if len(keys) > 1}
        entries = []
        for name, (dtype, shape) in self.tensors.items():
            targets = self.targets.get(name, ())
            op = "split" if len(targets) > 1 else "join" if joined & set(targets) else "rename" if targets else None
            op = "drop" if name in self.reasons else op
            entries += [
                {"source": name, "target": target, "shape": list(shape), "dtype": dtype, "op": op}
                for target in (targets or (None,))
            ]
        rules = None if self.rules is None else [dict(rule) for rule in self.rules]
        proof = {**self.outcomes, "engine": None, "lora": None}
        return {"schema": 1, "counts": self.counts, "rules": rules, "proof": proof, "entries": entries}

    def _sources(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, targets in self.targets.items():
            for target in targets:
                found.setdefault(target, []).append(name)
        return found


def prove(package: Package, headers: CheckpointHeaders, outcome: Mapping[str, Any], location: Path) -> LoadingProof:
    """Judge what the child process has seen.

    Raises:
        ScaffoldError: the package could not be asked.
    """
    if outcome.get("beside") and not outcome["read"]:
        outcome = {"unknown": f"before it opens a file of weights, its loader ends with {outcome['error']}"}
    if "unknown" in outcome:
        hint = "`omni-scaffold verify` runs the package" if outcome.get("missing") is None else None
        raise ScaffoldError(f"{package.name}: nothing is known of {headers.source}: {outcome['unknown']}", hint=hint)
    tensors = {
        name: (str(dtype), tuple(shape)) for file in outcome["read"].values() for name, (dtype, shape) in file.items()
    }
    placed = outcome.get("placed") or {}
    targets: dict[str, tuple[str, ...]] = {}
    for target, entry in placed.items():
        for _, key in entry["from"]:
            targets[key] = (*targets.get(key, ()), target)
    shapes = {name: tuple(entry["shape"]) for name, entry in placed.items()}
    computed = set(package.spec.get("checkpoint", {}).get("computed") or [])
    empty = tuple(
        sorted(
            (
                name
                for name, entry in placed.items()
                if entry["parameter"] and not entry["from"] and not entry["computed"] and name not in computed
            ),
            key=natural_key,
        )
    )
    rules, reasons, dead = _rules(package, tensors)
    findings: list[Finding] = []
    without = outcome.get("without")
    named = list(tensors) or [entry.name for entry in headers.entries]
    if without is None and not tensors and (part := wrapper_of(named, WRAPPERS)) is not None:
        without = {"what": part, "loads": False}
    if without is not None and not without["loads"] and without["what"] in OWN:
        without = None
    if without is not None:
        findings.append(Finding(None, told_wrapper(named, without["what"], loads=without["loads"])))
    # Of files that the loader did not come to, the headers.
    told = tensors if placed else {entry.name: (entry.dtype, entry.shape) for entry in headers.entries}
    narrow = quantised(told)
    findings += [Finding(None, narrow)] if narrow is not None else []
    variant = distilled(tensors, targets, headers.configs) if placed else None
    notes = (variant[0],) if variant is not None and variant[1] else ()
    findings += [Finding(None, variant[0])] if variant is not None and not variant[1] else []
    # That a loader cannot take quantised weights, or their scales, is no cause of its own.
    told_already = (without or {}).get("loads") or narrow is not None
    unnamed, unread = _unnamed(headers, outcome["read"], location)
    if placed and not empty:
        notes = (*notes, *unnamed, *unread)
    else:
        findings += [Finding(None, line) for line in unnamed]
        notes = (*notes, *unread)
    if outcome.get("error") is not None and not told_already:
        when = "" if tensors else "before it opens a file of weights, the loader ends with "
        findings.append(Finding("fills", when + _relative(str(outcome["error"]), location, headers.source)))
    if placed and empty and not tensors:
        findings.append(Finding("fills", "the loader ends without opening a file of weights"))
    known = set(reasons) | (set() if not any(f.check is None for f in findings) else set(filter(is_scale, tensors)))
    found = {
        "covers": [*_needed(tensors, targets, known)] if placed else [],
        "fills": [*_unfilled(empty, shapes, together=bool(unnamed) or not tensors)],
        "injective": [*_twice(targets, tensors, shapes)],
        "no_dead_rule": [f"the rule {quoted(name)} matches no key" for name in dead if placed],
        "shapes": [*_misfits(targets, tensors, shapes)],
    }
    findings += [Finding(check, message) for check, messages in found.items() for message in messages]
    outcomes: dict[str, bool | None] = dict.fromkeys(CHECKS)
    if placed:
        outcomes |= {check: not messages for check, messages in found.items()}
        outcomes["no_dead_rule"] = None if rules is None else not dead
        saved = outcome.get("saved")
        if saved is not None and not empty:  # what was never filled has no name in the checkpoint
            # Tensors of other components may be carried along.
            lost = sorted(set(targets) - set(saved), key=natural_key) + sorted(set(saved) - set(tensors))
            # A person's package may save under names of its own; `weights-round-trip` reads them back.
            outcomes["invertible"] = not lost if package.spec or not lost else None
            if lost and package.spec:
                findings.append(Finding("invertible", f"save_pretrained does not give back {quoted(lost[0])}"))
    elif outcome.get("error") is not None:
        outcomes["fills"] = False
    module = str(outcome["class"]) if placed else None
    return LoadingProof(
        package.name,
        headers.source,
        module,
        tensors,
        tuple(entry.name for entry in headers.entries),
        targets,
        shapes,
        empty,
        reasons,
        rules,
        tuple(findings),
        outcomes,
        notes,
    )


def _unnamed(headers: CheckpointHeaders, opened: Mapping[str, Any], location: Path) -> tuple[list[str], list[str]]:
    """Files of weights that an index leaves out: lines for those with tensors that no other has, and for copies."""
    missed, copies = [], []
    known = {entry.name for entry in headers.entries}
    for name, reason in headers.skipped.items():
        path = location / name
        if not name.endswith(WEIGHTS) or not path.is_file():
            continue
        more = [entry.name for entry in read_file(path, name, name)[0] if entry.name not in known]
        if os.path.realpath(path) in opened:
            copies.append(f"the loader reads {quoted(name)}, though {reason}")
        elif more:
            missed.append(f"{quoted(name)} is not read, {quoted(more[0])} and {len(more) - 1} more tensors: {reason}")
        else:
            copies.append(f"{quoted(name)} is not read: {reason}")
    return missed, copies


def _unfilled(empty: Sequence[str], shapes: Mapping[str, Shape], *, together: bool) -> Iterator[str]:
    if together and len(empty) > 1:
        yield f"nothing fills {len(empty)} parameters, {quoted(empty[0])} first"
        return
    for name in empty:
        yield f"nothing fills the parameter {quoted(name)} of shape {list(shapes[name])}"


def _relative(text: str, location: Path, source: str) -> str:
    """A message without this machine's folders."""
    return text.replace(f"{location}/", f"{source}/").replace(str(location), source)


def _rules(
    package: Package, tensors: Mapping[str, Any]
) -> tuple[tuple[dict[str, Any], ...] | None, dict[str, str], list[str]]:
    """The rules of a composed package with their matches, why keys are dropped, and rules that match nothing."""
    data = package.spec.get("checkpoint", {}).get("rules")
    if not isinstance(data, list) or not data or package.spec.get("port"):
        return None, {}, []
    key_map = KeyMap.from_data(data)
    matches = [0] * len(key_map.rules)
    reasons = {}
    for name in tensors:
        found = key_map.apply(name)
        if found is None:
            continue
        matches[found.rule] += 1
        if isinstance(found, Dropped):
            reasons[name] = found.reason
    rows = tuple(
        {"from": _side(rule.sources), "to": _side(rule.targets), "matches": count}
        for rule, count in zip(key_map.rules, matches, strict=True)
    )
    return (
        rows,
        reasons,
        [rule.label for rule, count in zip(key_map.rules, matches, strict=True) if not count and rule.op != "drop"],
    )


def _side(patterns: tuple[str, ...]) -> str | list[str] | None:
    return list(patterns) if len(patterns) > 1 else patterns[0] if patterns else None


def _needed(tensors: Mapping[str, Any], targets: Mapping[str, tuple[str, ...]], known: set[str]) -> Iterator[str]:
    """Keys that were not taken and belong to a layer of which others were, or to one more layer of a list."""
    layers: dict[str, str] = {}
    for name in targets:
        parts = name.split(".")
        # The layer itself, and every list of layers that it lies in.
        layers.setdefault(".".join(parts[:-1]), name)
        for place, part in enumerate(parts):
            if is_index(part):
                layers.setdefault(".".join(parts[:place]), name)
    left = [name for name in tensors if name not in targets and name not in known and not _computed(name)]
    near = []
    for name in left:
        parts = name.split(".")
        places = {len(parts) - 1, *(place for place, part in enumerate(parts) if is_index(part))}
        if any(place and ".".join(parts[:place]) in layers for place in places):
            near.append(name)
    for row in fold(near):
        count = f" ({row.count} tensors)" if row.count > 1 else ""
        yield f"the loader leaves out {quoted(row.pattern)}{count} of layers that it fills"


def _computed(name: str) -> bool:
    """Whether a name is that of a table which modules compute and checkpoints carry along."""
    return name.endswith((".inv_freq", ".position_ids", ".num_batches_tracked"))


def _twice(
    targets: Mapping[str, tuple[str, ...]], tensors: Mapping[str, tuple[str, Shape]], shapes: Mapping[str, Shape]
) -> Iterator[str]:
    first: dict[str, str] = {}
    for name, found in targets.items():
        for target in found:
            if tensors[name][1] == shapes[target] and first.setdefault(target, name) != name:
                yield f"{quoted(first[target])} and {quoted(name)} both become {quoted(target)}"


def _misfits(
    targets: Mapping[str, tuple[str, ...]], tensors: Mapping[str, tuple[str, Shape]], shapes: Mapping[str, Shape]
) -> Iterator[str]:
    """Parameters that got more or fewer numbers than they have."""
    sources: dict[str, list[str]] = {}
    for name, found in targets.items():
        for target in found:
            sources.setdefault(target, []).append(name)
    for target, names in sources.items():
        given = sum(prod(tensors[name][1]) for name in names)
        size = prod(shapes[target])
        shared = any(len(targets[name]) > 1 for name in names)
        if given < size or (given > size and not shared):
            yield f"{quoted(names[0])} has shape {list(tensors[names[0]][1])}, {quoted(target)} {list(shapes[target])}"
