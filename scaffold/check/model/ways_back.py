"""Functions that give weights the checkpoint's names, tried on the names that a package's ``scaffold.toml`` records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import key_tables, recorded_keys, renamed
from scaffold.check.model.name_functions import NotPlainError, RefusedNameError, answer
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable

_RANGE = re.compile(r"\{(\d+)[^{}]*\}")
_NAMED = re.compile(r"to_(?:the_)?(?:checkpoint|released|upstream|original|source)(?:_(?:key|name)s?)?$")
_SENT = "transformer."  # what the trainer puts in front of the actor's names


@lru_cache(maxsize=16)
def recorded_pairs(package: Package) -> list[tuple[str, str]]:
    """Return checkpoint key and parameter, one pair for each beginning that the names have; none without a record."""
    keys = recorded_keys(package)
    tables = key_tables(package)
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for source in keys.kept if keys is not None else ():
        row = renamed(tables, source)
        if source.endswith(".") or row is None or row.target is None:
            continue
        key = _RANGE.sub(r"\1", source)
        target = row.target + key[len(row.source) :]
        found.setdefault((row.source, target.partition(".")[0]), (key, target))
    return list(found.values())


@lru_cache(maxsize=16)
def wrong_ways_back(package: Package) -> tuple[tuple[FunctionModel, str], ...]:
    """Return functions that name a parameter otherwise than the checkpoint does, with what they make of which name."""
    return tuple(_wrong(package))


def _wrong(package: Package) -> Iterator[tuple[FunctionModel, str]]:
    pairs = recorded_pairs(package)
    if not pairs:
        return
    for function in _candidates(package):
        results = [(source, target, _answer(function, target)) for source, target in pairs]
        right = sum(made == source for source, target, made in results if source != target)
        if not right and not _NAMED.match(function.name.lstrip("_")):
            continue
        for source, target, made in results:
            if made not in (source, None) and made not in _other_sources(package, target):
                what = "raises" if made == "" else f"gives {made!r}"
                yield function, f"{function.name}({target!r}) {what}, and the checkpoint's name is {source!r}"
                break


def _other_sources(package: Package, target: str) -> set[str]:
    """Return the names that a row of its own leads from to a parameter; shared-rename-target speaks of two."""
    rows = [row for table in key_tables(package) for row in table.rows if row.target]
    return {row.source + target[len(row.target or "") :] for row in rows if target.startswith(row.target or "")}


def wrong_sent_names(package: Package) -> Iterator[tuple[FunctionModel, str]]:
    """Yield generators of the rollout side that give the actor's weights other names than the checkpoint's."""
    pairs = recorded_pairs(package)
    for adapter in package.rollout_adapters if pairs and not wrong_ways_back(package) else ():
        method = adapter.method("load_weights")
        for function in reachable(method, adapter) if method is not None else ():
            if function.file not in package.files or len(function.positional) != 1:
                continue
            if not function.nodes(ast.Yield) or _renamed(function, _SENT + pairs[0][1]) is None:
                continue
            results = [(source, target, _renamed(function, _SENT + target)) for source, target in pairs]
            if results and all(made == _SENT + target for _, target, made in results):
                back = {candidate.name for candidate in _candidates(package)}
                if any(isinstance(call.func, ast.Name) and call.func.id in back for call in function.calls):
                    yield function, f"names that begin with {_SENT!r}, as all of the actor's, are passed on as they are"
                continue
            # The engine's loader may want a prefix of its own before every name.
            before = {m.removesuffix(source) for source, _, m in results if m is not None and m.endswith(source)}
            for source, target, made in results:
                if made in (None, source, _SENT + target):
                    continue
                if made in _other_sources(package, target):
                    continue
                kept = _SENT in made[1:] and _SENT not in source
                if kept or (before and not any(made == start + source for start in before)):
                    yield function, f"the actor's {_SENT + target!r} becomes {made!r}, the checkpoint has {source!r}"
                    break


def _renamed(function: FunctionModel, name: str) -> str | None:
    """Return the name under which a generator passes the only pair that it is given on."""
    try:
        made = answer(function, [(name, "tensor")])
    except (NotPlainError, RefusedNameError):
        return None
    plain = isinstance(made, list) and len(made) == 1 and isinstance(made[0], tuple) and len(made[0]) == 2
    return made[0][0] if plain and isinstance(made[0][0], str) and made[0][1] == "tensor" else None


@lru_cache(maxsize=16)
def _candidates(package: Package) -> list[FunctionModel]:
    """Return the functions of one name that saving and weight sync get to, and that answer with something."""
    starts = [(cls, cls.method("load_weights")) for cls in package.rollout_adapters]
    if package.training_module is not None:
        starts.append((package.training_module, package.training_module.method("save_pretrained")))
    found = [function for cls, start in starts if start is not None for function in reachable(start, cls)]
    return [
        function
        for function in dict.fromkeys(found)
        if function.file in package.files and function.cls is None and len(function.positional) == 1
        if any(item.value is not None for item in function.returns)
    ]


def _answer(function: FunctionModel, name: str) -> str | None:
    """Return what a function makes of a name: ``""`` where it raises, None where that is not known."""
    try:
        made = answer(function, name)
    except RefusedNameError:
        return ""
    except NotPlainError:
        return None
    return made if isinstance(made, str) else None
