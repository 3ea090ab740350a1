"""Twins: sub-modules of a class that are there twice, once for text and once for what is generated."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import root_name, self_call
from scaffold.check.model.submodules import submodules


def twin_suffix(cls: ClassModel) -> str | None:
    """Return what twins have at the end of their names: the ending that makes the most pairs, two at least."""
    kinds: dict[str, set[str | None]] = {}
    for part in submodules(cls):
        kinds.setdefault(part.name, set()).add(part.qualified)
    counts: Counter[str] = Counter()
    for name in kinds:
        for other in kinds:
            # Twins are built alike; `attn` and `attn_norm` are no twins.
            if other != name and other.startswith(f"{name}_") and kinds[name] == kinds[other]:
                counts[other[len(name) :]] += 1
    if not counts:
        return None
    suffix, count = counts.most_common(1)[0]
    return suffix if count >= 2 else None


def twin_suffixes(package: Package) -> list[str]:
    """Return the endings of twins in all classes that the training module is built of."""
    owners = dict.fromkeys(part.owner for part in package.module_tree)
    return list(dict.fromkeys(suffix for cls in owners if (suffix := twin_suffix(cls)) is not None))


def twin_uses(function: FunctionModel, names: set[str], suffix: str) -> Iterator[tuple[str, bool, ast.Call]]:
    """Yield stream, whether the twin is used, and the call, for every call of one of a pair."""
    for call in function.calls:
        name = self_call(call)
        if name is None or not call.args:
            continue
        twin = name.endswith(suffix) and name[: -len(suffix)] in names
        if twin or name + suffix in names:
            stream = root_name(call.args[0])
            if stream is not None:
                yield stream, twin, call
